// Implements balance, its gradient, and steer. Losses and counts are added up in double: by sequence, whose
// sums are in the workspace, and then sequence by sequence, so that they do not depend on the threads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/route_scores.hpp"
#include "cpu/scratch.hpp"
#include "prun/op.hpp"
#include "prun/ops/balance.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

struct Sizes {
  std::int64_t sequences, positions, choices, routes;
};

// Holds the sums of a sequence whose positions have been visited.
template <class C>
struct Sequence {
  double* counts;       // by expert
  double* mean_scores;  // by expert too
  double* squares;      // [1]: the mean of logsumexp^2
  C* scores;            // that of one position

  Sequence(Scratch& scratch, std::int64_t routes)
      : counts(scratch.take<double>(routes)),
        mean_scores(scratch.take<double>(routes)),
        squares(scratch.take<double>(1)),
        scores(scratch.take<C>(routes)) {}
};

template <class C>
class Sequences {
 public:
  // `logits` may be left out; then there are counts alone.
  Sequences(const Tensor& logits, const Tensor& index, const Tensor& targets, std::int64_t routes,
            bool by_sigmoid, void* workspace)
      : sizes_{index.dim[0], index.dim[1], index.dim[2], routes},
        logits_(logits.as<const C>()),
        index_(index.as<const std::int32_t>()),
        targets_(targets.as<const std::int32_t>()),
        by_sigmoid_(by_sigmoid),
        workspace_(static_cast<std::byte*>(workspace)) {}

  static std::int64_t workspace_of(std::int64_t sequences, std::int64_t routes) {
    Scratch scratch;
    const Sequence<double> counted(scratch, routes);
    return sequences * scratch.bytes();
  }

  const Sizes& sizes() const { return sizes_; }
  Sequence<C> at(std::int64_t sequence) const {
    Scratch one;
    const Sequence<double> counted(one, sizes_.routes);
    Scratch scratch(workspace_ + sequence * one.bytes());
    return {scratch, sizes_.routes};
  }

  // Padding has no target that counts.
  bool is_real(std::int64_t sequence) const {
    const std::int32_t* const begin = targets_ + sequence * sizes_.positions;
    return std::any_of(begin, begin + sizes_.positions, [](std::int32_t target) { return target >= 0; });
  }

  const C* logits(std::int64_t sequence, std::int64_t position) const {
    return logits_ + (sequence * sizes_.positions + position) * sizes_.routes;
  }

  // Computes scores that add up to 1, and returns the logarithm of the logits' sum of exponentials.
  double scores_of(const C* logits, C* scores) const {
    const double sum = softmax_scores(logits, sizes_.routes, scores);
    if (!by_sigmoid_) return sum;
    sigmoid_scores(logits, sizes_.routes, scores);
    C all = 0;
    for (std::int64_t e = 0; e < sizes_.routes; ++e) all += scores[e];
    for (std::int64_t e = 0; e < sizes_.routes; ++e) scores[e] /= all + least_sum<C>;
    return sum;
  }

  void look(std::int64_t sequence) const {
    const Sequence<C> s = at(sequence);
    std::fill_n(s.counts, sizes_.routes, 0.0);
    const std::int64_t chosen = sizes_.positions * sizes_.choices;
    const std::int32_t* const index = index_ + sequence * chosen;
    for (std::int64_t i = 0; i < chosen; ++i)
      if (index[i] >= 0 && index[i] < sizes_.routes) ++s.counts[index[i]];
    if (logits_) look_at_scores(sequence, s);
  }

 private:
  void look_at_scores(std::int64_t sequence, const Sequence<C>& s) const {
    std::fill_n(s.mean_scores, sizes_.routes, 0.0);
    double squares = 0;
    for (std::int64_t t = 0; t < sizes_.positions; ++t) {
      const double sum = scores_of(logits(sequence, t), s.scores);
      squares += sum * sum;
      for (std::int64_t e = 0; e < sizes_.routes; ++e) s.mean_scores[e] += static_cast<double>(s.scores[e]);
    }
    const auto positions = static_cast<double>(sizes_.positions);
    for (std::int64_t e = 0; e < sizes_.routes; ++e) s.mean_scores[e] /= positions;
    *s.squares = squares / positions;
  }

  Sizes sizes_;
  const C* logits_;
  const std::int32_t *index_, *targets_;
  bool by_sigmoid_;
  std::byte* workspace_;
};

// Returns an expert's share of the choices, times the number of experts: 1 where all have the same.
double load(const Sizes& sizes, double count) {
  return count * static_cast<double>(sizes.routes) / static_cast<double>(sizes.positions * sizes.choices);
}

template <class C>
void balance(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Balance> op(args);
  const Tensor &counts = op["counts"], &losses = op["losses"];
  const Sequences<C> all(op["logits"], op["index"], op["targets"], counts.dim[1], op.integer("sigmoid") != 0,
                         args.workspace);
  const Sizes& sizes = all.sizes();
  const double scale = *op["scale"].as<const double>();
  parallel_ranges(*context.workers, sizes.sequences, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t sequence = begin; sequence < end; ++sequence) all.look(sequence);
  });
  double* const count = counts.as<double>() + args.layer * sizes.routes;
  double* const loss = losses.as<double>() + args.layer * 2;
  for (std::int64_t sequence = 0; sequence < sizes.sequences; ++sequence) {
    if (!all.is_real(sequence)) continue;
    const Sequence<C> s = all.at(sequence);
    for (std::int64_t e = 0; e < sizes.routes; ++e) count[e] += s.counts[e];
    if (!op["logits"].data) continue;
    double uneven = 0;
    for (std::int64_t e = 0; e < sizes.routes; ++e) uneven += load(sizes, s.counts[e]) * s.mean_scores[e];
    loss[0] += scale * op.real("coefficient") * uneven;
    loss[1] += scale * op.real("z") * *s.squares;
  }
}

// Computes d logits of one position; `scores` add up to 1, and `shares` are the experts' loads.
template <class C>
void add_uneven(const C* logits, const C* scores, const double* shares, std::int64_t routes, bool by_sigmoid,
                double factor, C* dlogits) {
  double mean = 0;
  for (std::int64_t e = 0; e < routes; ++e) mean += shares[e] * static_cast<double>(scores[e]);
  for (std::int64_t e = 0; e < routes; ++e) {
    const double slope = by_sigmoid ? static_cast<double>(sigmoid(logits[e]).rest) : 1.0;
    dlogits[e] += static_cast<C>(factor * static_cast<double>(scores[e]) * (shares[e] - mean) * slope);
  }
}

template <class C>
void balance_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::BalanceGrad> op(args);
  const bool by_sigmoid = op.integer("sigmoid") != 0;
  const Tensor &logits = op["logits"], &dlogits = op["dlogits"];
  const Sequences<C> all(logits, op["index"], op["targets"], logits.dim[2], by_sigmoid, args.workspace);
  const Sizes& sizes = all.sizes();
  const double by_position = *op["scale"].as<const double>() / static_cast<double>(sizes.positions);
  const double uneven = by_position * op.real("coefficient"), square = 2 * by_position * op.real("z");
  parallel_ranges(*context.workers, sizes.sequences, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t sequence = begin; sequence < end; ++sequence) {
      C* d = dlogits.as<C>() + sequence * sizes.positions * sizes.routes;
      std::fill_n(d, sizes.positions * sizes.routes, C(0));
      if (!all.is_real(sequence)) continue;
      all.look(sequence);
      const Sequence<C> s = all.at(sequence);
      for (std::int64_t e = 0; e < sizes.routes; ++e) s.counts[e] = load(sizes, s.counts[e]);
      for (std::int64_t t = 0; t < sizes.positions; ++t, d += sizes.routes) {
        const C* const row = all.logits(sequence, t);
        const double sum = softmax_scores(row, sizes.routes, s.scores);
        for (std::int64_t e = 0; e < sizes.routes; ++e)
          d[e] += static_cast<C>(square * sum * static_cast<double>(s.scores[e]));
        all.scores_of(row, s.scores);
        add_uneven(row, s.scores, s.counts, sizes.routes, by_sigmoid, uneven, d);
      }
    }
  });
}

template <class C>
void steer(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::Steer> op(args);
  const Tensor &counts = op["counts"], &bias = op["bias"];
  if (*op["keep"].as<const double>() == 0) return;
  const std::int64_t routes = counts.dim[1];
  const double* const count = counts.as<const double>() + args.layer * routes;
  double all = 0;
  for (std::int64_t e = 0; e < routes; ++e) all += count[e];
  // Loads are compared as whole numbers, without a quotient.
  for (std::int64_t e = 0; e < routes; ++e) {
    const double more = count[e] * static_cast<double>(routes);
    const double sign = more < all ? 1.0 : more > all ? -1.0 : 0.0;
    bias.as<C>()[e] += static_cast<C>(op.real("rate") * sign);
  }
}

template <class Op>
bool number_types(const ShapeOf<Op>& s) {
  return s["index"].dtype == DType::i32 && s["targets"].dtype == DType::i32 && s["scale"].dtype == DType::f64;
}

Kernel select_balance(const OpShape& shape) {
  const ShapeOf<ops::Balance> s(shape);
  if (!number_types(s) || s["counts"].dtype != DType::f64 ||
      (s["losses"].present && s["losses"].dtype != DType::f64))
    return nullptr;
  const DType type = s["logits"].present ? s["logits"].dtype : DType::f64;
  return choose_state(type, []<class C>() -> Kernel { return balance<C>; });
}

Kernel select_balance_grad(const OpShape& shape) {
  const ShapeOf<ops::BalanceGrad> s(shape);
  if (!number_types(s) || !same_type(s, {"logits", "dlogits"})) return nullptr;
  return choose_state(s["logits"].dtype, []<class C>() -> Kernel { return balance_grad<C>; });
}

Kernel select_steer(const OpShape& shape) {
  const ShapeOf<ops::Steer> s(shape);
  return choose_state(s["bias"].dtype, []<class C>() -> Kernel { return steer<C>; });
}

std::int64_t balance_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::Balance> s(shape);
  return Sequences<double>::workspace_of(s["index"].dims[0].extent, s["counts"].dims[1].extent);
}

std::int64_t balance_grad_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::BalanceGrad> s(shape);
  return Sequences<double>::workspace_of(s["index"].dims[0].extent, s["logits"].dims[2].extent);
}

}  // namespace

std::vector<KernelDef> balance_kernels();
std::vector<KernelDef> balance_kernels() {
  return {{ops::Balance::kind, select_balance, balance_workspace},
          {ops::BalanceGrad::kind, select_balance_grad, balance_grad_workspace},
          {ops::Steer::kind, select_steer}};
}

}  // namespace prun::cpu::PRUN_ISA
