#include "conform/split_trial.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/random.hpp"

namespace prun {
namespace {

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
