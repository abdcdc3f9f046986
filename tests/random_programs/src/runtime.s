# What every random program has: signals, threads, a lock, and ways to throw.

.data
.balign 16
sleep_time: .quad 0, 60000
lock_patience: .quad 0, 50000
lock_word: .long 0
.bss
.balign 16
action: .skip 32
timer: .skip 32
.text

# To the handler on top of r14's chain, if there is one.
.type throw_jump,@function
throw_jump:
 test %r14,%r14
 jz 1f
 mov %r14,%rsp
 jmp *8(%rsp)
1: ret
.size throw_jump,.-throw_jump

.type throw_return,@function
throw_return:
 test %r14,%r14
 jz 1f
 mov %r14,%rsp
 push 8(%rsp)
 ret
1: ret
.size throw_return,.-throw_return

.type throw_deep,@function
throw_deep:
 call throw_step
 ret
.size throw_deep,.-throw_deep

.type throw_step,@function
throw_step:
 call find_handler
 call throw_return
 ret
.size throw_step,.-throw_step

.type find_handler,@function
find_handler:
 mov %r14,%rax
1: test %rax,%rax
 jz 2f
 mov (%rax),%rax
 jmp 1b
2: ret
.size find_handler,.-find_handler

.type throw_far,@function
throw_far:
 test %r14,%r14
 jz 1f
 mov (%r14),%rax
 test %rax,%rax
 cmovnz %rax,%r14
 mov %r14,%rsp
 jmp *8(%rsp)
1: ret
.size throw_far,.-throw_far

# A call of *rax whose jump is a return.
.type retpoline_rax,@function
retpoline_rax:
 call 2f
1: pause
 jmp 1b
2: mov %rax,(%rsp)
 ret
.size retpoline_rax,.-retpoline_rax

.type lock,@function
lock:
 mov $1,%eax
 xchg %eax,lock_word(%rip)
 test %eax,%eax
 jz 1f
 mov $202,%eax
 lea lock_word(%rip),%rdi
 xor %esi,%esi
 mov $1,%edx
 lea lock_patience(%rip),%r10
 syscall
1: ret
.size lock,.-lock

.type unlock,@function
unlock:
 movl $0,lock_word(%rip)
 mov $202,%eax
 lea lock_word(%rip),%rdi
 mov $1,%esi
 mov $1,%edx
 syscall
 ret
.size unlock,.-unlock

# edi: the signal, rsi: its handler, edx: further flags.  It may come again while it is handled.
.type handle,@function
handle:
 lea action(%rip),%rax
 mov %rsi,(%rax)
 or $0x44000000,%edx
 mov %rdx,8(%rax)
 lea restorer(%rip),%rcx
 mov %rcx,16(%rax)
 movq $0,24(%rax)
 mov %rax,%rsi
 xor %edx,%edx
 mov $8,%r10d
 mov $13,%eax
 syscall
 ret
.size handle,.-handle

.type restorer,@function
 nop
restorer:
 mov $15,%eax
 syscall
.size restorer,.-restorer
 nop # as in a C library, where the system call would return to is no function, which a signal may interrupt

# esi: the signal, to the own thread.
.type raise,@function
raise:
 mov $186,%eax
 syscall
 mov %eax,%edi
 mov $200,%eax
 syscall
 ret
.size raise,.-raise

# edi: SIGALRM every so many us, 0: never again.
.type start_timer,@function
start_timer:
 lea timer(%rip),%rsi
 mov %rdi,8(%rsi)
 mov %rdi,24(%rsi)
 xor %edi,%edi
 xor %edx,%edx
 mov $38,%eax
 syscall
 ret
.size start_timer,.-start_timer

# rdx: where the thread's id is, until it has ended.
.type clone_flags,@function
clone_flags:
 mov $0x350f00,%edi
 mov %rdx,%r10
 xor %r8d,%r8d
 ret
.size clone_flags,.-clone_flags

.type join,@function
join:
 mov (%rdi),%edx
 test %edx,%edx
 jz 1f
 mov $202,%eax
 xor %esi,%esi
 xor %r10d,%r10d
 syscall
 jmp join
1: ret
.size join,.-join

