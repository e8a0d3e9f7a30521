// adamw and sgd against the reference updates in double, and what decides about them.
#include <limits>

#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(optimizer_kernels)

namespace {

using namespace prun;
using namespace prun::test;

constexpr double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, lr = 3e-2, lr_scale = 0.5, clip = 0.25;
const std::vector<std::int64_t> lengths = {1, 63, 64, 1000, 9001};

// A parameter of one type with states of another, with or without a master copy.
struct Types {
  DType parameter, state;
  bool master;
};

template <class Body>
void for_cases(Body body) {
  for (const InstructionSet& set : all_kernels())
    for (DType parameter : {DType::f64, DType::f32, DType::bf16})
      for (DType state : {DType::f64, DType::f32})
        for (bool master : {false, true})
          for (std::int64_t n : lengths) {
            SCOPED_TRACE(std::string(set.name) + " " + name_of(parameter) + " " + name_of(state) +
                         (master ? " master" : "") + " n " + std::to_string(n));
            body(set, Types{parameter, state, master}, n);
          }
}

// Weights in the parameter's type, so that a master starts equal to it.
Value master_of(const Value& parameter, const Types& types) {
  return types.master ? Value(types.state, parameter.dims(), parameter.numbers()) : Value();
}

Value positive(Value value) {
  for (std::size_t i = 0; i < value.size(); ++i) value.set(i, std::abs(value[i]));
  return value;
}

Call adamw_call(const Types& t, std::int64_t n, double step, double keep) {
  const Value parameter = random_value(t.parameter, {n}, 1);
  return {"adamw",
          {parameter, master_of(parameter, t), random_value(t.state, {n}, 2), random_value(t.state, {n}, 3),
           positive(random_value(t.state, {n}, 4)), number(lr), number(step), number(clip), number(keep)},
          {{.f = beta1}, {.f = beta2}, {.f = eps}, {.f = decay}, {.f = lr_scale}}};
}

// What is compared with more precision than the rounded parameter has.
void expect_weights(const std::vector<Value>& after, const Types& t, const std::vector<double>& want) {
  const bool narrow = t.parameter == DType::bf16 && !t.master;
  const bool wide = t.parameter == DType::f64 && t.state == DType::f64;
  const DType precision = narrow ? DType::bf16 : wide ? DType::f64 : DType::f32;
  expect_close(after[t.master ? 1 : 0], want, tolerance(precision), "weights");
  if (!t.master) return;
  EXPECT_EQ(after[0].bytes(), Value(t.parameter, after[0].dims(), after[1].numbers()).bytes())
      << "the parameter is the master, rounded";
}

TEST(AdamW, MatchesTheReference) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    for (double step : {1.0, 100.0}) {
      const Call call = adamw_call(t, n, step, 1);
      const std::vector<Value>& before = call.operands;
      const std::vector<Value> after = run(set, call);
      std::vector<double> p = before[0].numbers(), m(p.size()), v(p.size());
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double g = clip * before[2][i], rate = lr * lr_scale;
        p[i] *= 1 - rate * decay;
        m[i] = beta1 * before[3][i] + (1 - beta1) * g;
        v[i] = beta2 * before[4][i] + (1 - beta2) * g * g;
        const double mhat = m[i] / (1 - std::pow(beta1, step)), vhat = v[i] / (1 - std::pow(beta2, step));
        p[i] -= rate * mhat / (std::sqrt(vhat) + eps);
      }
      expect_weights(after, t, p);
      expect_close(after[3], m, tolerance(t.state), "m");
      expect_close(after[4], v, tolerance(t.state), "v");
    }
  });
}

// A shard of a parameter is updated as the whole would be.
TEST(AdamW, ElementsDoNotDependOnWhereTheyLie) {
  for (const InstructionSet& set : all_kernels()) {
    const Types types{DType::f32, DType::f32, false};
    const Call whole = adamw_call(types, 101, 3, 1);
    const std::vector<Value> want = run(set, whole);
    for (std::size_t first : {1u, 37u}) {
      Call part = adamw_call(types, 50, 3, 1);
      for (std::size_t k : {0u, 2u, 3u, 4u})
        for (std::size_t i = 0; i < 50; ++i) part.operands[k].set(i, whole.operands[k][first + i]);
      const std::vector<Value> after = run(set, part);
      for (std::size_t k : {0u, 3u, 4u})
        for (std::size_t i = 0; i < 50; ++i) ASSERT_EQ(after[k][i], want[k][first + i]) << set.name;
    }
  }
}

TEST(AdamW, KeepZeroWritesNothing) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    Call call = adamw_call(t, n, 1, 0);
    call.operands[2].set(0, std::numeric_limits<double>::infinity());
    const std::vector<Value> after = run(set, call);
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].bytes(), call.operands[i].bytes()) << i;
  });
}

Call sgd_call(const Types& t, std::int64_t n, double momentum, bool buffer, double keep) {
  const Value parameter = random_value(t.parameter, {n}, 1);
  return {"sgd",
          {parameter, master_of(parameter, t), random_value(t.state, {n}, 2),
           buffer ? random_value(t.state, {n}, 3) : Value(), number(lr), number(clip), number(keep)},
          {{.f = momentum}, {.f = decay}, {.f = lr_scale}}};
}

TEST(Sgd, MatchesTheReference) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    for (bool buffer : {false, true}) {
      const Call call = sgd_call(t, n, buffer ? 0.9 : 0.0, buffer, 1);
      const std::vector<Value>& before = call.operands;
      const std::vector<Value> after = run(set, call);
      std::vector<double> p = before[0].numbers(), m(p.size());
      for (std::size_t i = 0; i < p.size(); ++i) {
        m[i] = clip * before[2][i] + (buffer ? 0.9 * before[3][i] : 0.0);
        p[i] = p[i] * (1 - lr * lr_scale * decay) - lr * lr_scale * m[i];
      }
      expect_weights(after, t, p);
      if (buffer) expect_close(after[3], m, tolerance(t.state), "momentum");
    }
  });
}

TEST(Sgd, KeepZeroWritesNothing) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    const Call call = sgd_call(t, n, 0.9, true, 0);
    const std::vector<Value> after = run(set, call);
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].bytes(), call.operands[i].bytes()) << i;
  });
}

// What every build gives, with fused multiply-adds in its instruction set or without.
TEST(Optimizers, EveryInstructionSetGivesTheSameBits) {
  const std::vector<InstructionSet> sets = all_kernels();
  for (DType parameter : {DType::f64, DType::f32, DType::bf16})
    for (DType state : {DType::f64, DType::f32})
      for (bool master : {false, true})
        for (const Call& call : {adamw_call({parameter, state, master}, 9001, 1, 1),
                                 adamw_call({parameter, state, master}, 9001, 1234567, 1),
                                 sgd_call({parameter, state, master}, 9001, 0.9, true, 1),
                                 sgd_call({parameter, state, master}, 9001, 0, false, 1),
                                 Call{"sum_squares", {random_value(state, {9001}, 1), number(0)}}}) {
          const std::vector<Value> want = run(sets.front(), call);
          for (const InstructionSet& set : sets) {
            const std::vector<Value> got = run(set, call);
            for (std::size_t i = 0; i < got.size(); ++i)
              EXPECT_EQ(got[i].bytes(), want[i].bytes())
                  << call.op << ", operand " << i << ", " << set.name << ", " << name_of(parameter) << " "
                  << name_of(state);
          }
        }
}

TEST(Sgd, RefusesMomentumWithoutABuffer) {
  for (const InstructionSet& set : all_kernels()) {
    Call call = sgd_call({DType::f32, DType::f32, false}, 4, 0.9, false, 1);
    EXPECT_EQ(select_kernel(set, call), nullptr);
  }
}

TEST(Optimizers, RefuseStatesOfMixedTypes) {
  for (const InstructionSet& set : all_kernels()) {
    Call call = adamw_call({DType::f32, DType::f32, false}, 4, 1, 1);
    call.operands[4] = Value(DType::f64, {4});
    EXPECT_EQ(select_kernel(set, call), nullptr);
    call = adamw_call({DType::bf16, DType::f32, false}, 4, 1, 1);
    call.operands[1] = Value(DType::bf16, {4});
    EXPECT_EQ(select_kernel(set, call), nullptr);
  }
}

TEST(SumSquares, AddsToTheSum) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : {DType::f64, DType::f32, DType::bf16})
      for (std::int64_t n : {1, 4095, 4096, 4097, 50'001}) {
        const Call call{"sum_squares", {random_value(type, {n}, 1), number(2.5)}};
        double want = 2.5;
        for (double x : call.operands[0].numbers()) want += x * x;
        expect_close(run(set, call)[1], {want}, 1e-13, "sum");
      }
}

TEST(SumSquares, ShowsWhatIsNotFinite) {
  for (const InstructionSet& set : all_kernels())
    for (double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      Value x = random_value(DType::f32, {5000}, 1);
      x.set(4999, bad);
      EXPECT_FALSE(std::isfinite(run(set, {"sum_squares", {x, number(0)}})[1][0]));
    }
}

// Counts of three tensors; the one of index 1 in layer 0 is x.
std::vector<double> counted(const InstructionSet& set, const Value& x, double keep, std::int64_t first = 0,
                            std::int64_t elements = 0) {
  const Call call{"count_non_finite",
                  {x, number(keep), Value(DType::f64, {3}, {4, 5, 6})},
                  {{.i = 1}, {.i = 2}, {.i = first}, {.i = elements}}};
  return run(set, call)[2].numbers();
}

TEST(CountNonFinite, CountsWhereTheUpdateIsMasked) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : {DType::f64, DType::f32, DType::bf16}) {
      Value x = random_value(type, {10'000}, 1);
      EXPECT_EQ(counted(set, x, 0), (std::vector<double>{4, 5, 6})) << set.name;
      x.set(0, std::numeric_limits<double>::infinity());
      x.set(4999, -std::numeric_limits<double>::infinity());
      x.set(9999, std::nan(""));
      EXPECT_EQ(counted(set, x, 0), (std::vector<double>{4, 8, 6})) << set.name;
      EXPECT_EQ(counted(set, x, 1), (std::vector<double>{4, 5, 6})) << set.name;
    }
}

TEST(CountNonFinite, LooksThroughAStretchAlone) {
  for (const InstructionSet& set : all_kernels()) {
    Value x = random_value(DType::f32, {100}, 1);
    for (std::size_t i : {0u, 9u, 10u, 19u, 20u}) x.set(i, std::nan(""));
    EXPECT_EQ(counted(set, x, 0, 10, 10)[1], 7) << set.name;
    EXPECT_EQ(counted(set, x, 0, 20, 200)[1], 6) << set.name;
    EXPECT_EQ(counted(set, x, 0, 100, 20)[1], 5) << set.name;
  }
}

struct Decision {
  double norm, clip, keep;
};

Decision decide(const InstructionSet& set, double sum, double loss, double limit, double halt = 0) {
  const Call call{"clip_factor",
                  {number(sum), number(loss), number(halt), number(-1), number(-1), number(-1)},
                  {{.f = limit}}};
  const std::vector<Value> after = run(set, call);
  return {after[3][0], after[4][0], after[5][0]};
}

TEST(ClipFactor, ClipsOnlyAboveTheLimit) {
  for (const InstructionSet& set : all_kernels()) {
    EXPECT_EQ(decide(set, 16, 1, 1).norm, 4);
    EXPECT_EQ(decide(set, 16, 1, 1).clip, 0.25);
    EXPECT_EQ(decide(set, 16, 1, 1).keep, 1);
    EXPECT_EQ(decide(set, 16, 1, 4).clip, 1);
    EXPECT_EQ(decide(set, 16, 1, 0).clip, 1) << "0 means no limit";
    EXPECT_EQ(decide(set, 0, 1, 1).clip, 1);
  }
}

TEST(ClipFactor, KeepsOnlyFiniteSteps) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const InstructionSet& set : all_kernels()) {
    EXPECT_EQ(decide(set, infinity, 1, 1).keep, 0);
    EXPECT_EQ(decide(set, nan, 1, 1).keep, 0);
    EXPECT_EQ(decide(set, 1, nan, 1).keep, 0);
    EXPECT_EQ(decide(set, 1, -infinity, 1).keep, 0);
  }
}

TEST(ClipFactor, KeepsNothingOnceHalted) {
  for (const InstructionSet& set : all_kernels()) {
    EXPECT_EQ(decide(set, 16, 1, 1, 1).keep, 0);
    EXPECT_EQ(decide(set, 16, 1, 1, 1).norm, 4);
  }
}

}  // namespace
