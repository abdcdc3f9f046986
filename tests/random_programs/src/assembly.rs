//! A program as text for the GNU assembler: no libraries, so that all that runs is what the dice say.
//!
//! | register | |
//! |---|---|
//! | `r13` | the program's own dice |
//! | `r14` | the innermost open `try`: the handler before it, and where it begins, are on the stack there |

use std::fmt::Write as _;

use crate::program::{End, Function, FunctionNumber, Program, Statement, Syscall, Throw};

/// What every program has.
const RUNTIME: &str = include_str!("runtime.s");

/// SIGUSR1, SIGUSR2, SIGALRM: the timer's is the last.
const SIGNALS: [u32; 3] = [10, 12, 14];

/// SIGRTMIN is not the C library's here.
const SIGALRM: u32 = 14;

/// The text of a program.
#[must_use]
pub fn assembly(program: &Program) -> String {
    let mut text = Text { program, hot: String::new(), cold: String::new(), in_cold: false, labels: 0 };
    text.hot.push_str(RUNTIME);
    text.start();
    for (number, function) in program.functions.iter().enumerate() {
        text.function(&format!("f{number}"), function, true);
    }
    for (number, handler) in program.handlers.iter().enumerate() {
        text.function(&format!("on_signal{number}"), &handler.function, handler.lets_throws_out);
    }
    let data = text.data();
    text.hot + &data
}

/// The symbols of functions that have calls.
#[must_use]
pub fn symbols(program: &Program) -> Vec<String> {
    let functions = (0..program.functions.len()).map(|number| format!("f{number}"));
    let handlers = (0..program.handlers.len()).map(|number| format!("on_signal{number}"));
    functions.chain(handlers).collect()
}

struct Text<'a> {
    program: &'a Program,
    hot: String,
    /// Of the function that is being written.
    cold: String,
    in_cold: bool,
    labels: usize,
}

/// Of a function that has one: handlers have none.
fn number(name: &str) -> Option<FunctionNumber> {
    name.strip_prefix('f')?.parse().ok()
}

/// Writing to a string does not fail.
macro_rules! emit {
    ($text:expr, $($words:tt)*) => {{
        let _ = writeln!($text.out(), $($words)*);
    }};
}

impl Text<'_> {
    fn out(&mut self) -> &mut String {
        if self.in_cold { &mut self.cold } else { &mut self.hot }
    }

    fn label(&mut self) -> usize {
        self.labels += 1;
        self.labels
    }

    /// Writes to the cold part what `write` writes.
    fn cold(&mut self, write: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.in_cold, true);
        write(self);
        self.in_cold = before;
    }

    /// The carry flag is random.
    fn roll(&mut self) {
        let bit = 12 + self.labels % 19;
        emit!(self, " imul $1664525,%r13d,%r13d\n add $1013904223,%r13d\n bt ${bit},%r13d");
    }

    /// `rax` is the address of one of two functions.
    fn either(&mut self, one: FunctionNumber, other: FunctionNumber) {
        emit!(self, " lea f{one}(%rip),%rax\n lea f{other}(%rip),%rcx");
        self.label();
        self.roll();
        emit!(self, " cmovc %rcx,%rax");
    }

    /// `_start`: handlers, threads, the main thread's root, and the end.
    fn start(&mut self) {
        let program = self.program;
        emit!(self, ".globl _start\n.type _start,@function\n_start:\n xor %r14d,%r14d");
        for number in 0..program.handlers.len() {
            let (signal, flags) =
                (SIGNALS[number % SIGNALS.len()], if program.restarts { 0x1000_0000 } else { 0 });
            let signal = if number + 1 == program.handlers.len() { SIGALRM } else { signal };
            emit!(
                self,
                " mov ${signal},%edi\n lea on_signal{number}(%rip),%rsi\n mov ${flags},%edx\n call handle"
            );
        }
        for thread in 1..program.roots.len() {
            emit!(self, " lea stack{thread}_end(%rip),%rsi\n lea tid{thread}(%rip),%rdx\n call clone_flags");
            emit!(self, " mov $56,%eax\n syscall\n test %eax,%eax\n jz .Lchild{thread}");
        }
        if let Some(us) = program.timer_us {
            emit!(self, " mov ${us},%edi\n call start_timer");
        }
        let main = program.roots.first().copied().unwrap_or(0);
        emit!(self, " mov $1,%r13d\n call f{main}");
        for thread in 1..program.roots.len() {
            emit!(self, " lea tid{thread}(%rip),%rdi\n call join");
        }
        emit!(self, " xor %edi,%edi\n call start_timer");
        let bytes = 8 * program.functions.len();
        emit!(self, " mov $1,%eax\n mov $1,%edi\n lea entries(%rip),%rsi\n mov ${bytes},%edx\n syscall");
        emit!(self, " mov $231,%eax\n xor %edi,%edi\n syscall");
        for (thread, root) in program.roots.iter().enumerate().skip(1) {
            emit!(
                self,
                ".Lchild{thread}:\n mov ${thread}77,%r13d\n call f{root}\n mov $60,%eax\n xor %edi,%edi\n syscall"
            );
        }
        emit!(self, ".size _start,.-_start");
    }

    fn function(&mut self, name: &str, function: &Function, keeps_handlers: bool) {
        emit!(self, ".type {name},@function\n{name}:");
        if let Some(number) = number(name) {
            emit!(self, " lock incq entries+{}(%rip)", 8 * number);
        }
        emit!(self, " lock decl fuel(%rip)\n js .Lout_{name}");
        if !keeps_handlers {
            emit!(self, " xor %r14d,%r14d");
        }
        for (i, statement) in function.body.iter().enumerate() {
            if let Some(number) = number(name).filter(|_| i == function.middle) {
                emit!(self, ".Lmiddle{number}:");
            }
            self.statement(name, statement);
        }
        self.end(name, function.end);
        emit!(self, ".Lout_{name}:\n ret\n.size {name},.-{name}");
        let cold = std::mem::take(&mut self.cold);
        if !cold.is_empty() {
            emit!(self, ".pushsection .text.unlikely,\"ax\"\n.type {name}.cold,@function\n{name}.cold:");
            self.hot.push_str(&cold);
            emit!(self, ".size {name}.cold,.-{name}.cold\n.popsection");
        }
    }

    fn end(&mut self, name: &str, end: End) {
        match end {
            End::Return => emit!(self, " ret"),
            End::Tail(to) => self.tail(name, to),
            End::TailEither(one, other) => {
                self.either(one, other);
                if let Some(own) = number(name) {
                    // To itself it is a loop.
                    let label = self.label();
                    emit!(self, " lea {name}(%rip),%rcx\n cmp %rax,%rcx\n jne .L{label}");
                    emit!(self, " lock decq entries+8*{own}(%rip)\n.L{label}:");
                }
                emit!(self, " jmp *%rax");
            }
            End::TailOrReturn(to) if number(name) != Some(to) => {
                self.roll();
                emit!(self, " jc f{to}\n ret");
            }
            End::TailOrReturn(to) => {
                let label = self.label();
                self.roll();
                emit!(self, " jc .L{label}\n ret\n.L{label}:");
                self.tail(name, to);
            }
            End::ColdTail(to) => {
                let label = self.label();
                emit!(self, " jmp .Lcold{label}");
                self.cold(|text| {
                    emit!(text, ".Lcold{label}:\n nop");
                    text.tail(name, to);
                });
            }
            End::IntoMiddle(to) => emit!(self, " lock decl fuel(%rip)\n jns .Lmiddle{to}\n ret"),
        }
    }

    /// A jump to the entry of a function.  What the counters count are calls, and to itself it is a loop.
    fn tail(&mut self, name: &str, to: FunctionNumber) {
        if number(name) == Some(to) {
            emit!(self, " lock decq entries+8*{to}(%rip)");
        }
        emit!(self, " jmp f{to}");
    }

    fn block(&mut self, name: &str, body: &[Statement]) {
        body.iter().for_each(|statement| self.statement(name, statement));
    }

    fn statement(&mut self, name: &str, statement: &Statement) {
        let label = self.label();
        match statement {
            Statement::Spin(count) => {
                emit!(self, " mov ${count},%ecx\n.L{label}:\n dec %ecx\n jnz .L{label}")
            }
            Statement::Call(to) => emit!(self, " call f{to}"),
            Statement::CallEither(one, other) => {
                self.either(*one, *other);
                emit!(self, " call *%rax");
            }
            Statement::CallByRetpoline(one, other) => {
                self.either(*one, *other);
                emit!(self, " call retpoline_rax");
            }
            Statement::Maybe { cold, body } => self.maybe(name, label, *cold, body),
            Statement::Switch(cases) => self.switch(name, label, cases),
            Statement::Repeat(count, body) => {
                emit!(self, " push ${count}\n.L{label}:");
                self.block(name, body);
                emit!(self, " decq (%rsp)\n jnz .L{label}\n add $8,%rsp");
            }
            Statement::Syscall(call) => self.syscall(*call),
            Statement::Raise(signal) => {
                let last = signal + 1 == self.program.handlers.len();
                let signal = if last { SIGALRM } else { SIGNALS[signal % SIGNALS.len()] };
                emit!(self, " mov ${signal},%esi\n call raise");
            }
            Statement::Throw(how) => {
                let name = match how {
                    Throw::Jump => "throw_jump",
                    Throw::Return => "throw_return",
                    Throw::Deep => "throw_deep",
                    Throw::Far => "throw_far",
                };
                emit!(self, " call {name}");
            }
            Statement::Try { body, handler, rethrows, cold } => {
                self.attempt(name, label, (body, handler), *rethrows, *cold);
            }
            Statement::Locked(body) => {
                emit!(self, " call lock");
                self.block(name, body);
                emit!(self, " call unlock");
            }
            Statement::ReadPc => emit!(self, " call .L{label}\n.L{label}:\n pop %rax"),
            Statement::Leave(end) => self.end(name, *end),
        }
    }

    fn maybe(&mut self, name: &str, label: usize, cold: bool, body: &[Statement]) {
        self.roll();
        if cold && !self.in_cold {
            emit!(self, " jc .Lcold{label}\n.L{label}:");
            self.cold(|text| {
                emit!(text, ".Lcold{label}:");
                text.block(name, body);
                emit!(text, " jmp .L{label}");
            });
        } else {
            emit!(self, " jc .L{label}");
            self.block(name, body);
            emit!(self, ".L{label}:");
        }
    }

    fn switch(&mut self, name: &str, label: usize, cases: &[Vec<Statement>]) {
        let count = cases.len();
        self.roll();
        emit!(self, " mov %r13d,%eax\n shr $8,%eax\n xor %edx,%edx\n mov ${count},%ecx\n div %ecx");
        emit!(self, " lea .Ltable{label}(%rip),%rcx\n movslq (%rcx,%rdx,4),%rax\n add %rcx,%rax\n jmp *%rax");
        emit!(self, ".pushsection .rodata\n.balign 4\n.Ltable{label}:");
        for case in 0..count {
            emit!(self, " .long .Lcase{label}_{case}-.Ltable{label}");
        }
        emit!(self, ".popsection");
        for (case, body) in cases.iter().enumerate() {
            emit!(self, ".Lcase{label}_{case}:");
            self.block(name, body);
            emit!(self, " jmp .L{label}");
        }
        emit!(self, ".L{label}:");
    }

    fn attempt(
        &mut self,
        name: &str,
        label: usize,
        (body, handler): (&[Statement], &[Statement]),
        rethrows: bool,
        cold: bool,
    ) {
        emit!(self, " lea .Lpad{label}(%rip),%rax\n push %rax\n push %r14\n mov %rsp,%r14");
        self.block(name, body);
        emit!(self, " pop %r14\n add $8,%rsp");
        let pad = |text: &mut Self| {
            emit!(text, ".Lpad{label}:\n pop %r14\n add $8,%rsp");
            text.block(name, handler);
            if rethrows {
                emit!(text, " call throw_return");
            }
        };
        if cold && !self.in_cold {
            emit!(self, ".L{label}:");
            self.cold(|text| {
                pad(text);
                emit!(text, " jmp .L{label}");
            });
        } else {
            emit!(self, " jmp .L{label}");
            pad(self);
            emit!(self, ".L{label}:");
        }
    }

    fn syscall(&mut self, call: Syscall) {
        match call {
            Syscall::GetPid => emit!(self, " mov $39,%eax\n syscall"),
            Syscall::Yield => emit!(self, " mov $24,%eax\n syscall"),
            Syscall::Sleep => {
                emit!(self, " mov $35,%eax\n lea sleep_time(%rip),%rdi\n xor %esi,%esi\n syscall")
            }
        }
    }

    fn data(&self) -> String {
        let mut data = String::from(".section .note.GNU-stack,\"\",@progbits\n.data\n");
        let _ = writeln!(data, "fuel: .long {}", self.program.fuel);
        let _ = writeln!(data, ".bss\n.balign 16\nentries: .skip {}", 8 * self.program.functions.len());
        for thread in 1..self.program.roots.len() {
            let _ = writeln!(data, "tid{thread}: .skip 16\n.skip 0x800000\nstack{thread}_end: .skip 16");
        }
        data
    }
}
