#include "conform/kernel_trial.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace prun {
namespace {

constexpr std::size_t fence = 4096;
constexpr auto fence_byte = std::byte{0xa5};

// Holds bytes between two fences, aligned as a device's memory is.
class FencedBytes {
 public:
  FencedBytes(std::size_t size, std::byte filling) : size_(size), all_(size + 2 * fence + 64, fence_byte) {
    const auto at = reinterpret_cast<std::uintptr_t>(all_.data()) + fence;
    begin_ = fence + (64 - at % 64) % 64;
    std::fill_n(data(), size, filling);
  }
  std::byte* data() { return all_.data() + begin_; }
  std::size_t size() const { return size_; }
  bool is_whole_in_front() const { return is_fence(0, begin_); }
  bool is_whole_behind() const { return is_fence(begin_ + size_, all_.size()); }

 private:
  bool is_fence(std::size_t from, std::size_t to) const {
    return std::all_of(all_.begin() + static_cast<std::ptrdiff_t>(from),
                       all_.begin() + static_cast<std::ptrdiff_t>(to),
                       [](std::byte b) { return b == fence_byte; });
  }

  std::size_t size_, begin_ = 0;
  std::vector<std::byte> all_;
};

// Stands for threads that do not exist: it does their work, one after the other.
class TakenTurns {
 public:
  explicit TakenTurns(const LaunchManner& manner) : manner_(manner) {}
  Workers workers() { return {this, manner_.threads, &TakenTurns::run}; }

 private:
  static void run(void* pool, std::int64_t tasks, void (*body)(void* context, std::int64_t index),
                  void* context) {
    const LaunchManner& manner = static_cast<TakenTurns*>(pool)->manner_;
    if (manner.most_pieces) *manner.most_pieces = std::max(*manner.most_pieces, tasks);
    for (std::int64_t i = 0; i < tasks; ++i) body(context, manner.backwards ? tasks - 1 - i : i);
  }

  const LaunchManner& manner_;
};

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw_error(ErrorCode::bad_input, "the kernel of ", parts...);
}

void check_fences(const std::string& what, const FencedBytes& bytes) {
  if (!bytes.is_whole_in_front()) refuse(what, " writes in front of it");
  if (!bytes.is_whole_behind()) refuse(what, " writes behind it");
}

// Returns the first operand that differs, or the number of operands where all are the same.
std::size_t first_difference(const std::vector<TrialOperand>& a, const std::vector<TrialOperand>& b) {
  std::size_t i = 0;
  while (i < a.size() && a[i].bytes == b[i].bytes) ++i;
  return i;
}

// Begins the sums that the kernel says it can, over bytes that hold nothing, and adds to zeros.
void try_begins(const KernelDef& kernel, const KernelCall& call) {
  const auto sums = begun_sums(kernel, call);
  if (!sums) return;
  const std::vector<TrialOperand> want = launch(kernel, sums->added, {}),
                                  got = launch(kernel, sums->begun, {});
  for (std::size_t i = 0; i < want.size(); ++i)
    for (std::size_t e = 0; e < want[i].elements(); ++e)
      if (want[i].shape.present && !(want[i].number(e) == got[i].number(e)))
        refuse(operand_text(*call.def, i), " begins the sum (writes_first) and gives ", got[i].number(e),
               " for element ", e, "; added to zeros it gives ", want[i].number(e));
}

}  // namespace

double TrialOperand::number(std::size_t i) const {
  const std::byte* const at = bytes.data();
  switch (shape.dtype) {
    case DType::f64: return reinterpret_cast<const double*>(at)[i];
    case DType::f32: return static_cast<double>(reinterpret_cast<const float*>(at)[i]);
    case DType::bf16: return static_cast<double>(static_cast<float>(reinterpret_cast<const bf16*>(at)[i]));
    case DType::f16: return static_cast<double>(static_cast<float>(reinterpret_cast<const f16*>(at)[i]));
    case DType::i32: return reinterpret_cast<const std::int32_t*>(at)[i];
    case DType::i64: return static_cast<double>(reinterpret_cast<const std::int64_t*>(at)[i]);
    case DType::u8: return static_cast<double>(at[i]);
    case DType::u16: return reinterpret_cast<const std::uint16_t*>(at)[i];
  }
  return 0;
}

void TrialOperand::set(std::size_t i, double number) {
  std::byte* const at = bytes.data();
  switch (shape.dtype) {
    case DType::f64: reinterpret_cast<double*>(at)[i] = number; return;
    case DType::f32: reinterpret_cast<float*>(at)[i] = static_cast<float>(number); return;
    case DType::bf16: reinterpret_cast<bf16*>(at)[i] = bf16(static_cast<float>(number)); return;
    case DType::f16: reinterpret_cast<f16*>(at)[i] = f16(static_cast<float>(number)); return;
    case DType::i32: reinterpret_cast<std::int32_t*>(at)[i] = static_cast<std::int32_t>(number); return;
    case DType::i64: reinterpret_cast<std::int64_t*>(at)[i] = static_cast<std::int64_t>(number); return;
    case DType::u8: at[i] = static_cast<std::byte>(number); return;
    case DType::u16: reinterpret_cast<std::uint16_t*>(at)[i] = static_cast<std::uint16_t>(number); return;
  }
}

OpShape KernelCall::shape() const {
  OpShape shape;
  shape.count = static_cast<std::int32_t>(operands.size());
  shape.attrs = attrs.data();
  for (std::size_t i = 0; i < operands.size(); ++i) shape.operand[i] = operands[i].shape;
  return shape;
}

std::string operand_text(const OpDef& def, std::size_t i) {
  return detail::concat("op '", def.kind, "', operand '", def.operands[i].name, "',");
}

Tensor tensor_of(const TrialOperand& operand, void* data) {
  Tensor tensor;
  tensor.data = data;
  tensor.dtype = operand.shape.dtype;
  tensor.rank = operand.shape.rank;
  for (int d = 0; d < tensor.rank; ++d) {
    tensor.dim[d] = operand.shape.dims[d].extent;
    tensor.start[d] = operand.start[d];
  }
  return tensor;
}

bool holds_nothing(const KernelCall& call, std::size_t i) {
  return call.def->operands[i].access == Access::write || (call.begins >> i & 1u) != 0;
}

std::optional<BegunSums> begun_sums(const KernelDef& kernel, const KernelCall& call) {
  BegunSums sums{call, call};
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    if ((kernel.writes_first >> i & 1u) != 0 && call.operands[i].shape.present &&
        call.def->operands[i].access == Access::update) {
      sums.begun.begins |= 1u << i;
      std::vector<std::byte>& bytes = sums.added.operands[i].bytes;
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }
  return sums.begun.begins == 0 ? std::nullopt : std::optional(std::move(sums));
}

Kernel select_kernel(const KernelDef& kernel, const KernelCall& call) { return kernel.select(call.shape()); }

namespace {

// Returns the operands after a launch, which may have changed only those that it writes.
std::vector<TrialOperand> operands_after(const KernelCall& call, std::vector<FencedBytes>& memory,
                                         bool strict) {
  std::vector<TrialOperand> after = call.operands;
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (strict) check_fences(operand_text(*call.def, i), memory[i]);
    after[i].bytes.assign(memory[i].data(), memory[i].data() + memory[i].size());
    if (strict && call.def->operands[i].access == Access::read && after[i].bytes != call.operands[i].bytes)
      refuse(operand_text(*call.def, i), " changes it, and its definition says that it reads it");
  }
  return after;
}

}  // namespace

std::vector<TrialOperand> launch(const KernelDef& kernel, const KernelCall& call,
                                 const LaunchManner& manner) {
  const auto filling = static_cast<std::byte>(manner.filling);
  const OpShape shape = call.shape();
  const Kernel run = kernel.select(shape);
  if (!run) refuse("op '", call.def->kind, "' refuses these types and shapes");
  const std::int64_t workspace_bytes = kernel.workspace ? kernel.workspace(shape, manner.threads) : 0;
  if (workspace_bytes < 0 || workspace_bytes > std::int64_t{1} << 30)
    refuse("op '", call.def->kind, "' asks for ", workspace_bytes, " bytes of workspace");
  FencedBytes workspace(static_cast<std::size_t>(workspace_bytes), filling);
  std::vector<FencedBytes> memory;
  std::vector<Tensor> tensors;
  memory.reserve(call.operands.size());
  KernelArgs args;
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const TrialOperand& operand = call.operands[i];
    memory.emplace_back(static_cast<std::size_t>(operand.shape.bytes()), filling);
    if (!holds_nothing(call, i)) std::copy(operand.bytes.begin(), operand.bytes.end(), memory[i].data());
    tensors.push_back(operand.shape.present ? tensor_of(operand, memory[i].data()) : Tensor{});
    if (call.def->operands[i].access != Access::read) args.changes |= 1u << i;
  }
  args.operands = tensors.data();
  args.operand_count = static_cast<std::int32_t>(tensors.size());
  args.attrs = call.attrs.data();
  args.workspace = workspace.data();
  args.workspace_bytes = workspace_bytes;
  args.first = call.begins;
  TakenTurns turns(manner);
  const Workers workers = turns.workers();
  run(args, {&workers, nullptr});
  if (manner.strict)
    check_fences(detail::concat("op '", call.def->kind, "', with ", workspace_bytes, " bytes of workspace,"),
                 workspace);
  return operands_after(call, memory, manner.strict);
}

void try_memory(const KernelDef& kernel, const KernelCall& call) {
  const std::vector<TrialOperand> first = launch(kernel, call, {.filling = 0xff, .strict = true}),
                                  second = launch(kernel, call, {.filling = 0x00, .strict = true}),
                                  third = launch(kernel, call, {.filling = 0x3c, .strict = true});
  for (const std::vector<TrialOperand>* other : {&second, &third})
    if (const std::size_t i = first_difference(first, *other); i < first.size())
      refuse(operand_text(*call.def, i),
             " leaves elements unwritten, or reads what nobody wrote: the operand depends on what lay in the "
             "memory of its results or of its workspace before");
  try_begins(kernel, call);
}

bool try_threads(const KernelDef& kernel, const KernelCall& call) {
  const std::vector<TrialOperand> alone = launch(kernel, call, {});
  std::int64_t pieces = 0;
  for (const std::int32_t threads : {1, 2, 3, 8})
    for (const bool backwards : {false, true}) {
      const std::vector<TrialOperand> together =
          launch(kernel, call, {.threads = threads, .backwards = backwards, .most_pieces = &pieces});
      if (const std::size_t i = first_difference(alone, together); i < alone.size())
        refuse(operand_text(*call.def, i), " gives other bits with ", threads, " threads than with one",
               backwards ? ", if the last of them is first" : "");
    }
  return pieces != 1;
}

}  // namespace prun
