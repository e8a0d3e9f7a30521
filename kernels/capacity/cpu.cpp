// Implements cap_choices and count_dropped, a sequence at a time, by any thread. The order of choices has no
// ties, so that the same choices are kept however they are found.
#include <algorithm>
#include <bit>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/scratch.hpp"
#include "prun/op.hpp"
#include "prun/ops/capacity.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

struct Sizes {
  std::int64_t sequences, positions, choices, experts;

  std::int64_t of_sequence() const { return positions * choices; }
};

// Orders weights as numbers in fp32, and NaNs behind or before all of them.
std::uint32_t rank_of(float weight) {
  const auto bits = std::bit_cast<std::uint32_t>(weight + 0.0f);  // both zeros are alike
  constexpr std::uint32_t sign = std::uint32_t{1} << 31;
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

// Holds the choices of a sequence in the order of their experts.
struct Sorted {
  std::int64_t *begin, *choice;

  Sorted(Scratch& scratch, const Sizes& s)
      : begin(scratch.take<std::int64_t>(s.experts + 1)),
        choice(scratch.take<std::int64_t>(s.of_sequence())) {}

  void sort(const std::int32_t* index, const Sizes& s) const {
    std::fill_n(begin, s.experts + 1, std::int64_t{0});
    for (std::int64_t c = 0; c < s.of_sequence(); ++c) ++begin[index[c] + 1];
    for (std::int64_t e = 0; e < s.experts; ++e) begin[e + 1] += begin[e];
    for (std::int64_t c = 0; c < s.of_sequence(); ++c) choice[begin[index[c]]++] = c;
    for (std::int64_t e = s.experts; e > 0; --e) begin[e] = begin[e - 1];
    begin[0] = 0;
  }
};

// Sorts the choices of one sequence; weight and positions may be null.
template <class C>
struct Choices {
  const std::int32_t* index;
  const C* weight;
  const std::int32_t* positions;
  std::int64_t each;

  // Counts choices in the order of positions.
  std::int64_t number(std::int64_t choice) const {
    return positions ? positions[choice / each] * each + choice % each : choice;
  }
  bool goes_before(std::int64_t a, std::int64_t b) const {
    if (weight) {
      const std::uint32_t first = rank_of(static_cast<float>(weight[a])),
                          second = rank_of(static_cast<float>(weight[b]));
      if (first != second) return first > second;
    }
    return number(a) < number(b);
  }
};

template <class C>
void drop(const Choices<C>& of, const Sizes& s, std::int64_t most, const Sorted& sorted, std::int32_t* kept) {
  sorted.sort(of.index, s);
  for (std::int64_t e = 0; e < s.experts; ++e) {
    std::int64_t *const first = sorted.choice + sorted.begin[e], *const end =
                                                                     sorted.choice + sorted.begin[e + 1];
    if (end - first <= most) continue;
    std::nth_element(first, first + most, end,
                     [&](std::int64_t a, std::int64_t b) { return of.goes_before(a, b); });
    for (const std::int64_t* dropped = first + most; dropped != end; ++dropped) kept[*dropped] = -1;
  }
}

std::int64_t tasks_of(std::int64_t sequences, std::int32_t threads) {
  return std::min<std::int64_t>(sequences, threads);
}

template <class C>
void cap_choices(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::CapChoices> op(args);
  const Tensor& index = op["index"];
  const Sizes s{index.dim[0], index.dim[1], index.dim[2], op.integer("experts")};
  const std::int64_t most = op.integer("most"), each = s.of_sequence(),
                     tasks = tasks_of(s.sequences, context.workers->count);
  std::int32_t* const kept = op["kept"].as<std::int32_t>();
  std::copy_n(index.as<const std::int32_t>(), s.sequences * each, kept);
  if (most == 0) return;
  const C* const weight = op["weight"].as<const C>();
  Scratch one;
  const Sorted counted(one, s);
  parallel(*context.workers, tasks, [&](std::int64_t task) {
    Scratch scratch(static_cast<std::byte*>(args.workspace) + task * one.bytes());
    const Sorted sorted(scratch, s);
    for (std::int64_t i = s.sequences * task / tasks; i < s.sequences * (task + 1) / tasks; ++i)
      drop<C>({index.as<const std::int32_t>() + i * each, weight ? weight + i * each : nullptr,
               op["positions"].as<const std::int32_t>(), s.choices},
              s, most, sorted, kept + i * each);
  });
}

void count_dropped(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::CountDropped> op(args);
  const Tensor& index = op["index"];
  const std::int64_t positions = index.dim[1], each = positions * index.dim[2];
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < index.dim[0]; ++i) {
    const std::int32_t* const targets = op["targets"].as<const std::int32_t>() + i * positions;
    const std::int32_t* const chosen = index.as<const std::int32_t>() + i * each;
    if (std::any_of(targets, targets + positions, [](std::int32_t target) { return target >= 0; }))
      count += std::count(chosen, chosen + each, -1);
  }
  op["dropped"].as<double>()[args.layer] += static_cast<double>(count);
}

Kernel select_cap_choices(const OpShape& shape) {
  const ShapeOf<ops::CapChoices> s(shape);
  if (s["index"].dtype != DType::i32 || s["kept"].dtype != DType::i32 ||
      (s["positions"].present && s["positions"].dtype != DType::i32))
    return nullptr;
  const DType type = s["weight"].present ? s["weight"].dtype : DType::f32;
  return choose_state(type, []<class C>() -> Kernel { return cap_choices<C>; });
}

Kernel select_count_dropped(const OpShape& shape) {
  const ShapeOf<ops::CountDropped> s(shape);
  const bool fits =
      s["index"].dtype == DType::i32 && s["targets"].dtype == DType::i32 && s["dropped"].dtype == DType::f64;
  return fits ? count_dropped : nullptr;
}

std::int64_t cap_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::CapChoices> s(shape);
  const Dim* const dims = s["index"].dims;
  Scratch scratch;
  const Sorted counted(scratch, {dims[0].extent, dims[1].extent, dims[2].extent, s.integer("experts")});
  return tasks_of(dims[0].extent, threads) * scratch.bytes();
}

}  // namespace

std::vector<KernelDef> capacity_kernels();
std::vector<KernelDef> capacity_kernels() {
  return {{ops::CapChoices::kind, select_cap_choices, cap_workspace},
          {ops::CountDropped::kind, select_count_dropped}};
}

}  // namespace prun::cpu::PRUN_ISA
