// Implements route and route_grad, a position at a time, by any thread. Of experts with equal scores the
// first is chosen, and all choices differ whatever the numbers are, NaN among them.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/route_scores.hpp"
#include "cpu/scratch.hpp"
#include "prun/op.hpp"
#include "prun/ops/route.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

struct Choosing {
  std::int64_t routes, choices, groups, chosen_groups, group_best;

  std::int64_t group_size() const { return routes / groups; }
};

// Holds what a thread needs of one position.
template <class C>
struct Position {
  C *scores, *ranked, *groups;
  bool *taken, *taken_groups;

  Position(Scratch& scratch, const Choosing& c)
      : scores(scratch.take<C>(c.routes)),
        ranked(scratch.take<C>(c.routes)),
        groups(scratch.take<C>(c.groups)),
        taken(scratch.take<bool>(c.routes)),
        taken_groups(scratch.take<bool>(c.groups)) {}
};

// Takes the largest value that is not taken and returns its number.
template <class C>
std::int64_t take_largest(const C* values, bool* taken, std::int64_t n) {
  std::int64_t best = -1;
  for (std::int64_t i = 0; i < n; ++i)
    if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
  taken[best] = true;
  return best;
}

// Returns a group's largest score or the sum of its two largest.
template <class C>
C group_score(const C* ranked, std::int64_t size, std::int64_t best) {
  C first = ranked[0], second = 0;
  for (std::int64_t i = 1; i < size; ++i) {
    const bool leads = ranked[i] > first;
    const C next = leads ? first : ranked[i];
    second = i == 1 || next > second ? next : second;
    first = leads ? ranked[i] : first;
  }
  return best == 1 ? first : first + second;
}

// Experts of groups that are not chosen count as taken.
template <class C>
void choose_groups(const Choosing& c, const Position<C>& at) {
  const std::int64_t size = c.group_size();
  std::fill_n(at.taken, c.routes, c.groups > 1);
  if (c.groups == 1) return;
  std::fill_n(at.taken_groups, c.groups, false);
  for (std::int64_t g = 0; g < c.groups; ++g)
    at.groups[g] = group_score(at.ranked + g * size, size, c.group_best);
  for (std::int64_t i = 0; i < c.chosen_groups; ++i)
    std::fill_n(at.taken + take_largest(at.groups, at.taken_groups, c.groups) * size, size, false);
}

template <class C>
void choose(const Choosing& c, const Position<C>& at, const C* bias, std::int32_t* index) {
  for (std::int64_t e = 0; e < c.routes; ++e) at.ranked[e] = at.scores[e] + (bias ? bias[e] : C(0));
  choose_groups(c, at);
  for (std::int64_t i = 0; i < c.choices; ++i)
    index[i] = static_cast<std::int32_t>(take_largest(at.ranked, at.taken, c.routes));
}

template <class C>
void weigh(const C* scores, const std::int32_t* index, std::int64_t choices, bool normalise, C scale,
           C* weight) {
  C sum = 0;
  for (std::int64_t i = 0; i < choices; ++i) sum += scores[index[i]];
  const C factor = normalise ? scale / (sum + least_sum<C>) : scale;
  for (std::int64_t i = 0; i < choices; ++i) weight[i] = scores[index[i]] * factor;
}

template <class C>
void scores_of(const C* logits, std::int64_t n, bool by_sigmoid, C* scores) {
  if (by_sigmoid)
    sigmoid_scores(logits, n, scores);
  else
    softmax_scores(logits, n, scores);
}

std::int64_t ranges(std::int64_t positions, std::int32_t threads) {
  return positions < threads ? positions : threads;
}

// Calls body(i, position) for each position, dealt to threads that have a Position each.
template <class C, class Body>
void for_positions(const Workers& workers, std::int64_t positions, const Choosing& c, void* workspace,
                   const Body& body) {
  const std::int64_t tasks = ranges(positions, workers.count);
  Scratch one;
  const Position<C> counted(one, c);
  auto* const begin = static_cast<std::byte*>(workspace);
  parallel(workers, tasks, [&](std::int64_t task) {
    Scratch scratch(begin + task * one.bytes());
    const Position<C> at(scratch, c);
    for (std::int64_t i = positions * task / tasks; i < positions * (task + 1) / tasks; ++i) body(i, at);
  });
}

template <class C>
void route(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Route> op(args);
  const Tensor &logits = op["logits"], &index = op["index"];
  const Choosing c{logits.inner(1), index.inner(1), op.integer("groups"), op.integer("chosen_groups"),
                   op.integer("group_best")};
  const bool by_sigmoid = op.integer("sigmoid") != 0, normalise = op.integer("normalise") != 0;
  const C scale = static_cast<C>(op.real("scale"));
  for_positions<C>(*context.workers, logits.outer(1), c, args.workspace, [&](std::int64_t i, const auto& at) {
    std::int32_t* const chosen = index.as<std::int32_t>() + i * c.choices;
    scores_of(logits.as<const C>() + i * c.routes, c.routes, by_sigmoid, at.scores);
    choose(c, at, op["bias"].as<const C>(), chosen);
    weigh(at.scores, chosen, c.choices, normalise, scale, op["weight"].as<C>() + i * c.choices);
  });
}

// Writes d scores, for the chosen experts alone, into `dscore` by choice.
template <class C>
void score_gradients(const C* scores, const std::int32_t* index, const C* dweight, std::int64_t choices,
                     bool normalise, C scale, C* dscore) {
  C sum = 0, dot = 0;
  for (std::int64_t i = 0; i < choices; ++i) {
    sum += scores[index[i]];
    dot += dweight[i] * scores[index[i]];
  }
  sum += least_sum<C>;
  for (std::int64_t i = 0; i < choices; ++i)
    dscore[i] = normalise ? scale * (dweight[i] - dot / sum) / sum : scale * dweight[i];
}

template <class C>
void logit_gradients(const C* scores, const std::int32_t* index, const C* dscore, std::int64_t choices,
                     std::int64_t routes, bool by_sigmoid, C* dlogits) {
  C dot = 0;
  for (std::int64_t i = 0; i < choices; ++i) dot += dscore[i] * scores[index[i]];
  for (std::int64_t e = 0; e < routes; ++e) dlogits[e] = by_sigmoid ? C(0) : -scores[e] * dot;
  for (std::int64_t i = 0; i < choices; ++i) {
    const C score = scores[index[i]];
    dlogits[index[i]] += by_sigmoid ? dscore[i] * score * (C(1) - score) : score * dscore[i];
  }
}

template <class C>
void route_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RouteGrad> op(args);
  const Tensor &logits = op["logits"], &index = op["index"];
  const Choosing c{logits.inner(1), index.inner(1), 1, 1, 1};
  const bool by_sigmoid = op.integer("sigmoid") != 0, normalise = op.integer("normalise") != 0;
  const C scale = static_cast<C>(op.real("scale"));
  for_positions<C>(*context.workers, logits.outer(1), c, args.workspace, [&](std::int64_t i, const auto& at) {
    const std::int32_t* const chosen = index.as<const std::int32_t>() + i * c.choices;
    scores_of(logits.as<const C>() + i * c.routes, c.routes, by_sigmoid, at.scores);
    score_gradients(at.scores, chosen, op["dweight"].as<const C>() + i * c.choices, c.choices, normalise,
                    scale, at.ranked);
    logit_gradients(at.scores, chosen, at.ranked, c.choices, c.routes, by_sigmoid,
                    op["dlogits"].as<C>() + i * c.routes);
  });
}

Kernel select_route(const OpShape& shape) {
  const ShapeOf<ops::Route> s(shape);
  if (!same_type(s, {"logits", "bias", "weight"}) || s["index"].dtype != DType::i32) return nullptr;
  return choose_state(s["logits"].dtype, []<class C>() -> Kernel { return route<C>; });
}

Kernel select_route_grad(const OpShape& shape) {
  const ShapeOf<ops::RouteGrad> s(shape);
  if (!same_type(s, {"logits", "dweight", "dlogits"}) || s["index"].dtype != DType::i32) return nullptr;
  return choose_state(s["logits"].dtype, []<class C>() -> Kernel { return route_grad<C>; });
}

std::int64_t workspace(const OperandShape& logits, std::int32_t threads, std::int64_t groups) {
  const std::int64_t routes = logits.dims[logits.rank - 1].extent;
  Scratch scratch;
  const Position<double> counted(scratch, {routes, 1, groups, 1, 1});
  return ranges(logits.elements() / routes, threads) * scratch.bytes();
}

std::int64_t route_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::Route> s(shape);
  return workspace(s["logits"], threads, s.integer("groups"));
}

std::int64_t route_grad_workspace(const OpShape& shape, std::int32_t threads) {
  return workspace(ShapeOf<ops::RouteGrad>(shape)["logits"], threads, 1);
}

}  // namespace

std::vector<KernelDef> route_kernels();
std::vector<KernelDef> route_kernels() {
  return {{ops::Route::kind, select_route, route_workspace},
          {ops::RouteGrad::kind, select_route_grad, route_grad_workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
