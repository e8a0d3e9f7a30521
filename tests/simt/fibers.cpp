#include "tests/simt/fibers.hpp"

#include <sys/mman.h>

#include <cstdint>

#include "prun/error.hpp"

// Leaves on the stack what a call must preserve, and goes on on another, which was left likewise.
asm(R"(
.text
.local prun_simt_change_stack
.type prun_simt_change_stack, @function
prun_simt_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size prun_simt_change_stack, . - prun_simt_change_stack
)");
extern "C" void prun_simt_change_stack(void** left_at, void* go_on_at);

namespace prun::simt {
namespace {

constexpr std::size_t stack_bytes = 256 << 10, guard_bytes = 4096;

// As prun_simt_change_stack would have left it in front of `entry`.
void* fresh_stack(char* end, void (*entry)()) {
  auto** at = reinterpret_cast<void**>(end);
  *--at = nullptr;  // whom entry would return to
  *--at = reinterpret_cast<void*>(entry);
  for (int saved = 0; saved < 6; ++saved) *--at = nullptr;
  return at;
}

}  // namespace

Fibers::Fibers(std::size_t most, void (*entry)()) : entry_(entry), all_(most) {
  void* memory = mmap(nullptr, most * stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw_error(ErrorCode::internal, "no memory for ", most, " stacks");
  stacks_ = static_cast<char*>(memory);
  for (std::size_t i = 0; i < most; ++i) mprotect(stacks_ + i * stack_bytes, guard_bytes, PROT_NONE);
}

Fibers::~Fibers() { munmap(stacks_, all_.size() * stack_bytes); }

void Fibers::go_on_with(Fiber* fiber) {
  Fiber* const me = current_;
  current_ = fiber;
  prun_simt_change_stack(&me->at, fiber->at);
}

Fibers::Fiber* Fibers::take() {
  if (!idle_.empty()) {
    Fiber* const fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }
  PRUN_CHECK(used_ < all_.size(), "more than ", all_.size(), " fibers");
  // Apart by a line more than a page each: otherwise all would have the same lines of the cache.
  const std::size_t shift = used_ % 61 * 64;
  Fiber& fiber = all_[used_++];
  fiber.at = fresh_stack(stacks_ + used_ * stack_bytes - shift, entry_);
  return &fiber;
}

void Fibers::forget_all() {
  idle_.clear();
  used_ = 0;
}

}  // namespace prun::simt
