//! A random program: what its functions do, and how they leave.
//!
//! Functions call whatever there is, themselves included: fuel, which each entry takes one of, ends all
//! recursion.

use truth_tests::dice::Dice;

/// Index of a function in [`Program::functions`].
pub type FunctionNumber = usize;

/// A signal that the program handles: index in [`Program::handlers`].
pub type SignalNumber = usize;

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// `f0`, `f1`, ...
    pub functions: Vec<Function>,
    /// What handles the signals: `on_signal0`, ...
    pub handlers: Vec<Handler>,
    /// Where each thread starts; the first is the main thread's.
    pub roots: Vec<FunctionNumber>,
    /// Entries into functions before all of them only return.
    pub fuel: u32,
    /// A timer sends the last signal so often, in us of real time.
    pub timer_us: Option<u32>,
    /// An interrupted system call starts again.
    pub restarts: bool,
    /// Position-independent.
    pub pie: bool,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// What it does.
    pub body: Vec<Statement>,
    /// Others may jump in front of this statement of the body.
    pub middle: usize,
    /// How it leaves.
    pub end: End,
}

/// A signal handler.
#[derive(Clone, Debug)]
pub struct Handler {
    /// What it does, and how it leaves.
    pub function: Function,
    /// What is thrown in it may leave it (`siglongjmp`).
    pub lets_throws_out: bool,
}

/// A piece of a function.
#[derive(Clone, Debug)]
pub enum Statement {
    /// A loop without calls.
    Spin(u32),
    /// A direct call.
    Call(FunctionNumber),
    /// A call through a register.
    CallEither(FunctionNumber, FunctionNumber),
    /// A call through a register and a retpoline: its `ret` is the jump.
    CallByRetpoline(FunctionNumber, FunctionNumber),
    /// Done or not; `cold`: in the function's `.cold` part.
    Maybe {
        /// It is in the cold part.
        cold: bool,
        /// What is done.
        body: Vec<Statement>,
    },
    /// One of several, through a jump table.
    Switch(Vec<Vec<Statement>>),
    /// Done so often.
    Repeat(u32, Vec<Statement>),
    /// A system call.
    Syscall(Syscall),
    /// A signal to the own thread.
    Raise(SignalNumber),
    /// Control goes to the innermost [`Statement::Try`] that is open, if there is one.
    Throw(Throw),
    /// What is thrown in the body comes here.
    Try {
        /// What may throw.
        body: Vec<Statement>,
        /// What is done with what was thrown.
        handler: Vec<Statement>,
        /// The handler is a cleanup: it throws on.
        rethrows: bool,
        /// The handler is in the cold part.
        cold: bool,
    },
    /// Done with a lock held, or tried for in vain.
    Locked(Vec<Statement>),
    /// `call` to the next instruction, which reads the program counter.
    ReadPc,
    /// The function ends here; only where its stack is as at its entry.
    Leave(End),
}

/// System calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syscall {
    /// Returns at once.
    GetPid,
    /// Gives the CPU away.
    Yield,
    /// Sleeps for 60 us.
    Sleep,
}

/// How control gets to the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throw {
    /// By an indirect jump, as `longjmp` does.
    Jump,
    /// By a return, as the unwinder does.
    Return,
    /// By a return, out of some calls of its own.
    Deep,
    /// Past the innermost handler, by an indirect jump.
    Far,
}

/// How a function leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It returns.
    Return,
    /// It jumps to another function.
    Tail(FunctionNumber),
    /// It jumps to another function, through a register.
    TailEither(FunctionNumber, FunctionNumber),
    /// It jumps to another function or returns: a conditional jump.
    TailOrReturn(FunctionNumber),
    /// It jumps to another function, out of its cold part.
    ColdTail(FunctionNumber),
    /// It jumps into the middle of another.
    IntoMiddle(FunctionNumber),
}

impl Program {
    /// Functions into whose middle others jump.
    #[must_use]
    pub fn entered_in_the_middle(&self) -> Vec<FunctionNumber> {
        let is_entered = |number: &FunctionNumber| {
            self.any(&|statement| matches!(statement, Statement::Leave(End::IntoMiddle(to)) if to == number))
        };
        (0..self.functions.len()).filter(is_entered).collect()
    }

    /// Control leaves calls otherwise than by their returns.
    #[must_use]
    pub fn throws(&self) -> bool {
        self.any(&|statement| {
            matches!(statement, Statement::Throw(_) | Statement::Try { rethrows: true, .. })
        })
    }

    /// A statement, or an end, is such a one.
    fn any(&self, is_it: &dyn Fn(&Statement) -> bool) -> bool {
        let handlers = self.handlers.iter().map(|handler| &handler.function);
        let in_function = |function: &Function| {
            is_it(&Statement::Leave(function.end))
                || function.body.iter().any(|statement| statement.any(is_it))
        };
        self.functions.iter().chain(handlers).any(in_function)
    }
}

impl Statement {
    /// It, or one inside of it, is such a one.
    fn any(&self, is_it: &dyn Fn(&Self) -> bool) -> bool {
        let inside = |body: &[Self]| body.iter().any(|statement| statement.any(is_it));
        is_it(self)
            || match self {
                Self::Maybe { body, .. } | Self::Repeat(_, body) | Self::Locked(body) => inside(body),
                Self::Switch(cases) => cases.iter().any(|case| inside(case)),
                Self::Try { body, handler, .. } => inside(body) || inside(handler),
                _ => false,
            }
    }
}

/// What programs of one kind do often, in percent.
struct Temper {
    functions: usize,
    signals: usize,
    throws: u32,
    tails: u32,
    odd: u32,
    kernel: u32,
}

impl Program {
    /// The program of a seed.
    #[must_use]
    pub fn new(dice: &mut Dice) -> Self {
        let signals = if dice.percent(50) { dice.between(1, 3) as usize } else { 0 };
        let temper = Temper {
            functions: dice.between(2, 12) as usize,
            signals,
            throws: dice.pick(&[0, 5, 15]),
            tails: dice.pick(&[0, 30, 60, 90]),
            odd: dice.pick(&[0, 0, 10]),
            kernel: dice.pick(&[0, 10, 30]),
        };
        let functions = (0..temper.functions).map(|_| temper.function(dice)).collect();
        let handler =
            |dice: &mut Dice| Handler { function: temper.function(dice), lets_throws_out: dice.percent(50) };
        let handlers = (0..signals).map(|_| handler(dice)).collect();
        let threads = if dice.percent(40) { dice.between(2, 4) } else { 1 };
        Self {
            functions,
            handlers,
            roots: (0..threads).map(|_| dice.below(temper.functions)).collect(),
            fuel: dice.pick(if temper.throws > 0 { &[20, 50, 100] } else { &[30, 100, 300, 600] }) * threads,
            timer_us: (signals > 0 && dice.percent(40)).then(|| dice.between(200, 800)),
            restarts: dice.percent(50),
            pie: dice.percent(70),
        }
    }
}

/// Statements inside of statements.
const DEPTH_MAX: u32 = 2;

impl Temper {
    fn function(&self, dice: &mut Dice) -> Function {
        let body = self.block(dice, 0, true);
        Function { middle: dice.below(body.len()), body, end: self.end(dice) }
    }

    fn end(&self, dice: &mut Dice) -> End {
        let mut any = || dice.below(self.functions);
        let (one, other) = (any(), any());
        if dice.percent(self.odd) {
            return End::IntoMiddle(one);
        }
        if !dice.percent(self.tails) {
            return End::Return;
        }
        match dice.below(4) {
            0 => End::Tail(one),
            1 => End::TailEither(one, other),
            2 => End::TailOrReturn(one),
            _ => End::ColdTail(one),
        }
    }

    /// `balanced`: the stack is as at the function's entry.
    fn block(&self, dice: &mut Dice, depth: u32, balanced: bool) -> Vec<Statement> {
        let count = dice.between(1, if depth == 0 { 5 } else { 2 });
        (0..count).map(|_| self.statement(dice, depth, balanced)).collect()
    }

    fn statement(&self, dice: &mut Dice, depth: u32, balanced: bool) -> Statement {
        if dice.percent(self.throws) {
            return match dice.below(3) {
                0 => Statement::Throw(dice.pick(&[Throw::Jump, Throw::Return, Throw::Deep, Throw::Far])),
                _ if depth < DEPTH_MAX => self.attempt(dice, depth),
                _ => Statement::Spin(1),
            };
        }
        if dice.percent(self.kernel) {
            return self.kernel(dice);
        }
        if dice.percent(self.odd) {
            return Statement::ReadPc;
        }
        let mut any = || dice.below(self.functions);
        let (one, other) = (any(), any());
        match dice.below(if depth < DEPTH_MAX { 12 } else { 6 }) {
            0 | 1 => Statement::Spin(dice.between(1, 20)),
            2 | 3 => Statement::Call(one),
            4 => Statement::CallEither(one, other),
            5 => Statement::CallByRetpoline(one, other),
            6 | 7 => Statement::Maybe { cold: dice.percent(40), body: self.block(dice, depth + 1, balanced) },
            8 => Statement::Switch((0..3).map(|_| self.block(dice, depth + 1, balanced)).collect()),
            9 => Statement::Repeat(dice.between(2, 4), self.block(dice, depth + 1, false)),
            10 if balanced && depth > 0 => Statement::Leave(self.end(dice)),
            _ => Statement::Call(one),
        }
    }

    fn attempt(&self, dice: &mut Dice, depth: u32) -> Statement {
        Statement::Try {
            body: self.block(dice, depth + 1, false),
            handler: self.block(dice, depth + 1, false),
            rethrows: dice.percent(40),
            cold: dice.percent(40),
        }
    }

    fn kernel(&self, dice: &mut Dice) -> Statement {
        match dice.below(4) {
            0 if self.signals > 0 => Statement::Raise(dice.below(self.signals)),
            1 => Statement::Locked(vec![Statement::Spin(dice.between(1, 200))]),
            _ => Statement::Syscall(dice.pick(&[Syscall::GetPid, Syscall::Yield, Syscall::Sleep])),
        }
    }
}
