#include "plugin_check/kernel_trial.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/random.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- kernel trial

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

namespace {

// ------------------------------------------------------------------- split trial

constexpr double tolerance = 1e-9;

using Operands = std::vector<TrialOperand>;

bool lists(const Name (&names)[max_marks], const Name& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::optional<int> place_of(const OperandShape& shape, const Name& dim) {
  for (int d = 0; shape.present && d < shape.rank; ++d)
    if (shape.dims[d].name == dim) return d;
  return {};
}

OpShape rule_of(const KernelCall& call) {
  OpShape shape = call.shape();
  raise(call.def->rule(&shape));
  return shape;
}

// Calls body(begin in the whole, begin in the part, bytes) for each run of bytes of one of two parts.
template <class Body>
void each_run(const OperandShape& whole, int d, int part, Body&& body) {
  std::int64_t outer = 1, inner = size_of(whole.dtype);
  for (int i = 0; i < d; ++i) outer *= whole.dims[i].extent;
  for (int i = d + 1; i < whole.rank; ++i) inner *= whole.dims[i].extent;
  const std::int64_t row = whole.dims[d].extent * inner, half = row / 2;
  for (std::int64_t o = 0; o < outer; ++o) body(o * row + part * half, o * half, half);
}

TrialOperand part_of(const TrialOperand& whole, int d, int part) {
  TrialOperand result = whole;
  result.shape.dims[d].extent /= 2;
  result.start[d] += part * result.shape.dims[d].extent;
  result.bytes.resize(static_cast<std::size_t>(result.shape.bytes()));
  each_run(whole.shape, d, part, [&](std::int64_t from, std::int64_t to, std::int64_t bytes) {
    std::copy_n(whole.bytes.begin() + from, bytes, result.bytes.begin() + to);
  });
  return result;
}

void put_part(TrialOperand& whole, const TrialOperand& part, int d, int which) {
  each_run(whole.shape, d, which, [&](std::int64_t to, std::int64_t from, std::int64_t bytes) {
    std::copy_n(part.bytes.begin() + from, bytes, whole.bytes.begin() + to);
  });
}

void clear(TrialOperand& operand) { std::fill(operand.bytes.begin(), operand.bytes.end(), std::byte{0}); }

void keep_largest(TrialOperand& to, const TrialOperand& from) {
  for (std::size_t i = 0; i < to.elements(); ++i) to.set(i, std::max(to.number(i), from.number(i)));
}

void add(TrialOperand& to, const TrialOperand& from) {
  for (std::size_t i = 0; i < to.elements(); ++i) to.set(i, to.number(i) + from.number(i));
}

// Sums of many terms differ by their order: differences are compared with the largest of an operand's
// numbers.
void compare(const KernelCall& call, const Operands& want, const Operands& got, const std::string& how,
             const std::string& remedy) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (call.def->operands[i].access == Access::read || !want[i].shape.present) continue;
    double largest = 1;
    for (std::size_t e = 0; e < want[i].elements(); ++e)
      largest = std::max(largest, std::abs(want[i].number(e)));
    for (std::size_t e = 0; e < want[i].elements(); ++e) {
      const double a = want[i].number(e), b = got[i].number(e);
      if (a == b || std::abs(a - b) <= tolerance * largest || (std::isnan(a) && std::isnan(b))) continue;
      throw_error(ErrorCode::bad_input, operand_text(*call.def, i), " is ", b, " in element ", e, " ", how,
                  ", and ", a, " of the whole; ", remedy);
    }
  }
}

class DimTrial {
 public:
  DimTrial(const KernelDef& kernel, const KernelCall& call, const OpShape& rule, const Name& dim)
      : kernel_(kernel),
        call_(call),
        rule_(rule),
        dim_(dim),
        sums_(lists(rule.sums, dim)),
        maxes_(lists(rule.maxes, dim)) {}

  // An operand that is each rank's own is for the op of the same rank: it is neither cut nor compared.
  void run(const Operands& want) {
    if (reads_own()) return;
    Operands got = call_.operands;
    for (int part = 0; part < 2; ++part) {
      const KernelCall mine = of_part(part);
      check_rule(mine, part);
      if (!select_kernel(kernel_, mine))
        throw_error(ErrorCode::bad_input, "op '", call_.def->kind, "' has no kernel for a part of '",
                    dim_.view(), "', which its rule leaves free to be split; mark it by s.whole");
      const Operands after = launch(kernel_, mine, {});
      for (std::size_t i = 0; i < got.size(); ++i)
        if (!own(i)) take(got[i], after[i], i, part);
    }
    for (std::size_t i = 0; i < got.size(); ++i)
      if (own(i)) got[i] = want[i];
    compare(call_, want, got, detail::concat("with '", dim_.view(), "' split in two"),
            sums_
                ? "its rule says that it sums over that dimension (s.sum), and the parts' sums do not add up"
            : maxes_ ? "its rule says that it takes the largest over that dimension (s.max), and the largest "
                       "of the parts' is not that"
                     : "mark the dimension in its rule by s.whole, s.sum or s.max, or let the kernel heed "
                       "Tensor::start");
  }

 private:
  bool has_dim(std::size_t i) const { return place_of(rule_.operand[i], dim_).has_value(); }
  bool linear(std::size_t i) const { return (rule_.linear >> i & 1u) != 0; }
  bool own(std::size_t i) const { return (rule_.own >> i & 1u) != 0; }
  bool reads_own() const {
    for (std::size_t i = 0; i < call_.operands.size(); ++i)
      if (own(i) && call_.operands[i].shape.present && call_.def->operands[i].access == Access::read)
        return true;
    return false;
  }
  // Says whether an operand is a summand that all ranks have alike, which must count once.
  bool counts_once(std::size_t i) const {
    if (!sums_ || has_dim(i)) return false;
    return call_.def->operands[i].access == Access::update || linear(i);
  }

  KernelCall of_part(int part) const {
    KernelCall mine = call_;
    for (std::size_t i = 0; i < mine.operands.size(); ++i) {
      if (!mine.operands[i].shape.present) continue;
      if (const auto d = place_of(mine.operands[i].shape, dim_))
        mine.operands[i] = part_of(mine.operands[i], *d, part);
      else if (counts_once(i) && part > 0)
        clear(mine.operands[i]);
    }
    return mine;
  }

  void check_rule(const KernelCall& mine, int part) const {
    const OpShape shape = rule_of(mine);
    for (int i = 0; i < shape.count; ++i) {
      const OperandShape &given = mine.operands[static_cast<std::size_t>(i)].shape, &said = shape.operand[i];
      if (given.present && !std::equal(given.dims, given.dims + given.rank, said.dims, said.dims + said.rank))
        throw_error(ErrorCode::bad_input, operand_text(*call_.def, static_cast<std::size_t>(i)),
                    " gets another shape by its rule in part ", part, " of '", dim_.view(),
                    "' than that part of the whole has; mark the dimension by s.whole");
    }
  }

  void take(TrialOperand& whole, const TrialOperand& after, std::size_t i, int part) const {
    if (call_.def->operands[i].access == Access::read || !whole.shape.present) return;
    if (const auto d = place_of(whole.shape, dim_))
      put_part(whole, after, *d, part);
    else if (part == 0)
      whole.bytes = after.bytes;
    else if (sums_)
      add(whole, after);
    else if (maxes_)
      keep_largest(whole, after);
    else if (whole.bytes != after.bytes)
      throw_error(ErrorCode::bad_input, operand_text(*call_.def, i), " has not '", dim_.view(),
                  "', and differs between the ranks that '", dim_.view(),
                  "' is split over; mark the dimension in its rule by s.sum or s.whole");
  }

  const KernelDef& kernel_;
  const KernelCall& call_;
  const OpShape& rule_;
  const Name dim_;
  const bool sums_, maxes_;
};

// Tries that results add up for two summands of each operand that is declared linear.
void try_linear(const KernelDef& kernel, const KernelCall& call, const OpShape& rule, const Operands& want) {
  const RandomStream draw(5, stream_id("summands"));
  KernelCall first = call, second = call;
  std::string names;
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const OpDef& def = *call.def;
    if (def.operands[i].access == Access::update) clear(second.operands[i]);
    const bool marked = (rule.linear >> i & 1u) != 0;
    if (!marked || !call.operands[i].shape.present || def.operands[i].access != Access::read) continue;
    names += detail::concat(names.empty() ? "" : " and ", "'", def.operands[i].name, "'");
    for (std::size_t e = 0; e < call.operands[i].elements(); ++e) {
      const double x = call.operands[i].number(e), some = draw.normal(e + 1000 * i);
      first.operands[i].set(e, some);
      second.operands[i].set(e, x - some);
    }
  }
  if (names.empty()) return;
  Operands got = launch(kernel, first, {});
  const Operands other = launch(kernel, second, {});
  for (std::size_t i = 0; i < got.size(); ++i)
    if (call.def->operands[i].access != Access::read && got[i].shape.present) add(got[i], other[i]);
  compare(call, want, got, detail::concat("as a sum over two summands of ", names),
          "its rule says that partial sums pass through (s.pass_partial), and they do not");
}

// Tries that the larger of two values of each operand that is declared monotone gives the larger of both
// results.
void try_monotone(const KernelDef& kernel, const KernelCall& call, const OpShape& rule) {
  const RandomStream draw(7, stream_id("maxima"));
  KernelCall other = call, larger = call;
  std::string names;
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const OperandDef& def = call.def->operands[i];
    if ((rule.monotone >> i & 1u) == 0 || !call.operands[i].shape.present || def.access == Access::write)
      continue;
    names += detail::concat(names.empty() ? "" : " and ", "'", def.name, "'");
    for (std::size_t e = 0; e < call.operands[i].elements(); ++e)
      other.operands[i].set(e, draw.normal(e + 1000 * i));
    larger.operands[i] = other.operands[i];
    keep_largest(larger.operands[i], call.operands[i]);
  }
  if (names.empty()) return;
  Operands got = launch(kernel, call, {});
  const Operands others = launch(kernel, other, {});
  for (std::size_t i = 0; i < got.size(); ++i)
    if (call.def->operands[i].access != Access::read && got[i].shape.present) keep_largest(got[i], others[i]);
  compare(larger, launch(kernel, larger, {}), got, detail::concat("as the larger of two ", names),
          "its rule says that partial maxima pass through (s.pass_maximum), and they do not");
}

// Returns the same operand with the halves of a dimension exchanged.
TrialOperand exchanged(const TrialOperand& whole, const Name& dim) {
  const auto d = whole.shape.present ? place_of(whole.shape, dim) : std::nullopt;
  if (!d) return whole;
  TrialOperand result = whole;
  for (int part = 0; part < 2; ++part) put_part(result, part_of(whole, *d, part), *d, 1 - part);
  return result;
}

// Tries that an op whose rule allows positions in any order gives the same results in another order.
void try_order(const KernelDef& kernel, const KernelCall& call, const Dim& positions, const Operands& want) {
  KernelCall other = call;
  for (TrialOperand& operand : other.operands) operand = exchanged(operand, positions.name);
  Operands got = launch(kernel, other, {});
  for (TrialOperand& operand : got) operand = exchanged(operand, positions.name);
  compare(call, want, got, detail::concat("with the halves of '", positions.name.view(), "' exchanged"),
          "it says that positions may lie in any order (any_order), and their order counts");
}

std::vector<Dim> dims_of(const KernelCall& call) {
  std::vector<Dim> dims;
  for (const TrialOperand& operand : call.operands)
    for (int d = 0; operand.shape.present && d < operand.shape.rank; ++d)
      if (std::find(dims.begin(), dims.end(), operand.shape.dims[d]) == dims.end())
        dims.push_back(operand.shape.dims[d]);
  return dims;
}

}  // namespace

std::vector<std::string> try_marks(const KernelDef& kernel, const KernelCall& call) {
  std::vector<std::string> untried;
  const OpShape rule = rule_of(call);
  const Operands want = launch(kernel, call, {});
  for (const Dim& dim : dims_of(call)) {
    const bool in_any_order = call.def->any_order && dim.name == Name("seq"), even = dim.extent % 2 == 0;
    if (in_any_order && even) try_order(kernel, call, dim, want);
    if (lists(rule.wholes, dim.name) && (even || !in_any_order)) continue;
    if (!even)
      untried.push_back(
          detail::concat("'", dim.name.view(), "' of op '", call.def->kind, "', which is ", dim.extent));
    else
      DimTrial(kernel, call, rule, dim.name).run(want);
  }
  try_linear(kernel, call, rule, want);
  try_monotone(kernel, call, rule);
  return untried;
}

}  // namespace prun
