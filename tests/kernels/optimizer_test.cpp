// adamw and sgd against the reference updates in double, and what decides about them.
#include <bit>
#include <limits>
#include <optional>

#include "base/random.hpp"
#include "prun/split_master.hpp"

#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, optimizer_test)

namespace prun::test::optimizer_test {
namespace {

constexpr double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, lr = 3e-2, lr_scale = 0.5, clip = 0.25;
const std::vector<std::int64_t> lengths = {1, 63, 64, 1000, 9001};

// What a parameter, its gradient and its states lie in; `master`: nothing where there is no copy, u16 where
// it is the low half.
struct Types {
  DType parameter, gradient, state;
  std::optional<DType> master;

  bool wide() const { return gradient == DType::f64; }
  bool narrow() const { return parameter == DType::bf16 && !master; }
  bool split() const { return master == DType::u16; }
  std::string text() const {
    return std::string(name_of(parameter)) + ", gradient " + name_of(gradient) + ", states " +
           name_of(state) + ", master " + (master ? name_of(*master) : "none");
  }
};

std::vector<Types> all_types() {
  std::vector<Types> all = {{DType::f64, DType::f64, DType::f64, {}},
                            {DType::f32, DType::f64, DType::f64, DType::f64},
                            {DType::bf16, DType::f64, DType::f64, DType::f64},
                            {DType::f32, DType::f32, DType::f32, {}},
                            {DType::f32, DType::f32, DType::bf16, {}}};
  for (DType gradient : {DType::f32, DType::bf16})
    for (DType state : {DType::f32, DType::bf16})
      for (std::optional<DType> master :
           {std::optional<DType>(), std::optional(DType::f32), std::optional(DType::u16)})
        all.push_back({DType::bf16, gradient, state, master});
  all.push_back({DType::f16, DType::f64, DType::f64, DType::f64});
  for (DType state : {DType::f32, DType::bf16}) all.push_back({DType::f16, DType::f32, state, DType::f32});
  return all;
}

template <class Body>
void for_cases(Body body) {
  for (const InstructionSet& set : all_kernels())
    for (const Types& types : all_types())
      for (std::int64_t n : lengths) {
        SCOPED_TRACE(std::string(set.name) + " " + types.text() + " n " + std::to_string(n));
        body(set, types, n);
      }
}

// Weights that need all bits of a master copy, and what the parameter is beside it.
struct Weights {
  Value parameter, master;

  Weights(const Types& t, std::int64_t n) : parameter(random_value(t.parameter, {n}, 1)) {
    if (!t.master) return;
    const Value whole = random_value(t.split() ? DType::f32 : *t.master, {n}, 1);
    master = t.split() ? Value(DType::u16, {n}) : whole;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const auto number = static_cast<float>(whole[i]);
      if (t.parameter == DType::bf16) parameter.tensor().as<std::uint16_t>()[i] = rounded_half(number);
      if (t.parameter == DType::f32 || t.parameter == DType::f16) parameter.set(i, whole[i]);
      if (t.split()) master.set(i, low_half(number));
    }
  }
};

// With all the precision there is.
std::vector<double> weights_in(std::vector<Value> operands, const Types& t) {
  if (!t.master) return operands[0].numbers();
  if (!t.split()) return operands[1].numbers();
  std::vector<double> all;
  for (std::size_t i = 0; i < operands[0].size(); ++i)
    all.push_back(static_cast<double>(joined_halves(operands[0].tensor().as<std::uint16_t>()[i],
                                                    operands[1].tensor().as<std::uint16_t>()[i])));
  return all;
}

Value positive(Value value) {
  for (std::size_t i = 0; i < value.size(); ++i) value.set(i, std::abs(value[i]));
  return value;
}

constexpr double seed = 12345;
constexpr std::string_view name = "block.3.up.weight";

std::vector<TensorElements> whole_tensor(std::int64_t n) { return {{name_hash(name), 0, n, 0, n, n, 0}}; }

Call adamw_call(const Types& t, std::int64_t n, double step, double keep) {
  const Weights weights(t, n);
  Call call{"adamw",
            {weights.parameter, weights.master, random_value(t.gradient, {n}, 2),
             random_value(t.state, {n}, 3), positive(random_value(t.state, {n}, 4)), number(lr), number(step),
             number(clip), number(keep), number(seed)},
            {{.f = beta1}, {.f = beta2}, {.f = eps}, {.f = decay}, {.f = lr_scale}}};
  call.updates = whole_tensor(n);
  return call;
}

void expect_weights(std::vector<Value> after, const Types& t, const std::vector<double>& want) {
  const DType precision = t.narrow() ? DType::bf16 : t.wide() ? DType::f64 : DType::f32;
  const std::vector<double> got = weights_in(after, t);
  expect_close(Value(DType::f64, {static_cast<std::int64_t>(got.size())}, got), want, tolerance(precision),
               "weights");
  if (!t.master || t.split()) return;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto weight = static_cast<float>(got[i]);
    double rounded = weight;
    if (t.parameter == DType::bf16) rounded = std::bit_cast<float>(std::uint32_t{rounded_half(weight)} << 16);
    if (t.parameter == DType::f16) rounded = f16(weight);
    ASSERT_EQ(after[0][i], rounded) << "the parameter is the master, rounded";
  }
}

TEST(AdamW, MatchesTheReference) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    for (double step : {1.0, 100.0}) {
      const Call call = adamw_call(t, n, step, 1);
      const std::vector<Value>& before = call.operands;
      const std::vector<Value> after = run(set, call);
      std::vector<double> p = weights_in(before, t), m(p.size()), v(p.size());
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
    const Types types{DType::f32, DType::f32, DType::f32, {}};
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

// Two tensors with padding before, between and behind them.
std::vector<TensorElements> padded_tensors(std::int64_t n) {
  const std::int64_t half = n / 2, first = half - 5, second = n - half - 3;
  return {{name_hash("first"), 3, first, 0, first, first, 0},
          {name_hash("second"), half, second, 0, second, second, 0}};
}

// Beside what adamw makes of the new state, the old one is as it was, with its padding.
TEST(AdamWKeepingOld, IsAdamWBehindCopies) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    for (const double keep : {0.0, 1.0}) {
      Call update = adamw_call(t, n, 3, keep);
      if (n >= 64) update.updates = padded_tensors(n);
      Call both = update;
      both.op = "adamw_keeping_old";
      const std::vector<std::size_t> changed = {0, 1, 3, 4};
      for (const std::size_t i : changed)
        both.operands.push_back(i == 1 && !t.master ? Value() : Value(update.operands[i].dtype(), {n}));
      const std::vector<Value> want = run(set, update), got = run(set, both);
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].bytes(), want[i].bytes()) << i;
      for (std::size_t k = 0; k < changed.size(); ++k) {
        const Value& old = keep != 0 ? update.operands[changed[k]] : both.operands[want.size() + k];
        EXPECT_EQ(got[want.size() + k].bytes(), old.bytes()) << k;
      }
    }
  });
}

Call sgd_call(const Types& t, std::int64_t n, double momentum, bool buffer, double keep) {
  const Weights weights(t, n);
  Call call{"sgd",
            {weights.parameter, weights.master, random_value(t.gradient, {n}, 2),
             buffer ? random_value(t.state, {n}, 3) : Value(), number(lr), number(clip), number(keep),
             number(7), number(seed)},
            {{.f = momentum}, {.f = decay}, {.f = lr_scale}}};
  call.updates = whole_tensor(n);
  return call;
}

TEST(Sgd, MatchesTheReference) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    for (bool buffer : {false, true}) {
      const Call call = sgd_call(t, n, buffer ? 0.9 : 0.0, buffer, 1);
      const std::vector<Value>& before = call.operands;
      const std::vector<Value> after = run(set, call);
      std::vector<double> p = weights_in(before, t), m(p.size());
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

constexpr double average_decay = 0.9;

Call average_call(const Types& t, std::int64_t n, double step, double keep) {
  const Weights weights(t, n);
  return {"average_weights",
          {weights.parameter, weights.master, random_value(t.wide() ? DType::f64 : DType::f32, {n}, 3),
           number(step), number(keep)},
          {{.f = average_decay}}};
}

// In double, by the sum that it stands for: the weight behind update s counts decay^(t - s).
TEST(AverageWeights, IsTheMeanOfTheWeightsSoFar) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    constexpr int steps = 30;
    std::vector<double> sum(static_cast<std::size_t>(n), 0.0);
    double counted = 0;
    Value average = random_value(t.wide() ? DType::f64 : DType::f32, {n}, 3);
    for (std::size_t i = 0; i < average.size(); ++i) average.set(i, 0);
    for (int step = 1; step <= steps; ++step) {
      Call call = average_call(t, n, step, 1);
      call.operands[2] = average;
      if (!t.master)  // another weight each time
        for (std::size_t i = 0; i < call.operands[0].size(); ++i)
          call.operands[0].set(i, call.operands[0][i] + step);
      const std::vector<double> weight = weights_in(call.operands, t);
      average = run(set, call)[2];
      counted = average_decay * counted + 1;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = average_decay * sum[i] + weight[i];
    }
    for (double& number : sum) number /= counted;
    expect_close(average, sum, tolerance(t.wide() ? DType::f64 : DType::f32), "average");
  });
}

TEST(AverageWeights, BeginsWithTheFirstWeight) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    Call call = average_call(t, n, 1, 1);
    for (std::size_t i = 0; i < call.operands[2].size(); ++i) call.operands[2].set(i, 0);
    EXPECT_EQ(run(set, call)[2].numbers(), weights_in(call.operands, t));
  });
}

TEST(AverageWeights, KeepZeroWritesNothing) {
  for_cases([](const InstructionSet& set, const Types& t, std::int64_t n) {
    const Call call = average_call(t, n, 3, 0);
    const std::vector<Value> after = run(set, call);
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].bytes(), call.operands[i].bytes()) << i;
  });
}

std::vector<Call> all_updates(const Types& t, std::int64_t n) {
  return {adamw_call(t, n, 1, 1), adamw_call(t, n, 1234567, 1), sgd_call(t, n, 0.9, true, 1),
          sgd_call(t, n, 0, false, 1), average_call(t, n, 1234567, 1)};
}

void expect_same(const std::vector<Value>& got, const std::vector<Value>& want, const std::string& what) {
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(got[i].bytes(), want[i].bytes()) << what << ", operand " << i;
}

// What every build gives, with fused multiply-adds in its instruction set or without.
TEST(Optimizers, EveryInstructionSetGivesTheSameBits) {
  const std::vector<InstructionSet> sets = all_kernels();
  for (const Types& t : all_types())
    for (const Call& call : all_updates(t, 9001)) {
      const std::vector<Value> want = run(sets.front(), call);
      for (const InstructionSet& set : sets)
        expect_same(run(set, call), want, call.op + ", " + set.name + ", " + t.text());
    }
  for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Call call{"sum_squares", {random_value(type, {9001}, 1), number(0)}};
    const std::vector<Value> want = run(sets.front(), call);
    for (const InstructionSet& set : sets) expect_same(run(set, call), want, set.name);
  }
}

TEST(Optimizers, ASplitMasterCopyHasTheBitsOfAWholeOne) {
  for (const InstructionSet& set : all_kernels())
    for (DType state : {DType::f32, DType::bf16}) {
      const Types whole{DType::bf16, DType::f32, state, DType::f32},
          split{DType::bf16, DType::f32, state, DType::u16};
      const std::vector<Call> left = all_updates(whole, 9001), right = all_updates(split, 9001);
      for (std::size_t k = 0; k < left.size(); ++k) {
        std::vector<Value> want = run(set, left[k]), got = run(set, right[k]);
        EXPECT_EQ(weights_in(got, split), weights_in(want, whole)) << left[k].op << " " << set.name;
        got[1] = want[1];
        expect_same(got, want, left[k].op + " " + set.name);
      }
    }
}

// 0 / 0 in a step that nothing masks: eps and the gradient are 0.
TEST(Optimizers, ANotANumberStaysOneInEveryForm) {
  for (const InstructionSet& set : all_kernels())
    for (const Types& t : all_types()) {
      Call call = adamw_call(t, 70, 1, 1);
      call.attrs[2].f = 0;
      for (std::size_t operand : {2u, 3u, 4u}) call.operands[operand].set(69, 0);
      const std::vector<Value> after = run(set, call);
      EXPECT_TRUE(std::isnan(after[0][69])) << set.name << " " << t.text();
      EXPECT_TRUE(std::isnan(weights_in(after, t)[69])) << set.name << " " << t.text();
      EXPECT_FALSE(std::isnan(after[0][68]));
    }
}

// ---------------------------------------------------------------- rounding by chance

constexpr Types chancy{DType::bf16, DType::f32, DType::bf16, {}};
constexpr Types exact{DType::bf16, DType::f32, DType::f32, DType::f32};

// The numbers of an update before they are rounded: master copy, m and v.
std::vector<Value> unrounded(const InstructionSet& set, const Call& call) {
  Call wide = call;
  for (std::size_t k : {3u, 4u})
    wide.operands[k] = Value(DType::f32, call.operands[k].dims(), call.operands[k].numbers());
  wide.operands[1] = Value(DType::f32, call.operands[0].dims(), call.operands[0].numbers());
  const std::vector<Value> after = run_on(set, wide, 1);
  return {after[1], after[3], after[4]};
}

std::uint32_t chance_of(std::uint64_t stream, std::size_t element) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto key = static_cast<std::uint64_t>(seed);
  return philox4x32({low(element / 4), 0, low(stream), low(stream >> 32)}, {low(key), low(key >> 32)},
                    7)[element % 4];
}

TEST(RoundingByChance, IsKeyedBySeedStepNameAndElement) {
  for (const InstructionSet& set : all_kernels())
    for (double step : {1.0, 3e9}) {
      const Call call = adamw_call(chancy, 1003, step, 1);
      std::vector<Value> want = unrounded(set, call), got = run(set, call);
      const std::uint64_t stream = stream_id(name, static_cast<std::uint64_t>(step));
      const auto rounded = [&](Value& value, std::size_t i, std::uint32_t chance) {
        return (std::bit_cast<std::uint32_t>(value.tensor().as<float>()[i]) + chance) >> 16;
      };
      for (std::size_t i = 0; i < 1003; ++i) {
        const std::uint32_t word = chance_of(stream, i), of_weight = word * 0x9E3779B1u >> 16;
        ASSERT_EQ(got[3].tensor().as<std::uint16_t>()[i], rounded(want[1], i, word & 0xffff)) << i;
        ASSERT_EQ(got[4].tensor().as<std::uint16_t>()[i], rounded(want[2], i, word >> 16)) << i;
        ASSERT_EQ(got[0].tensor().as<std::uint16_t>()[i], rounded(want[0], i, of_weight)) << i;
      }
    }
}

// Rows of a tensor of which every other part is here, behind some of another one and padding.
TEST(RoundingByChance, DoesNotDependOnHowATensorLies) {
  constexpr std::int64_t rows = 9, width = 70, run_length = 35;
  for (const InstructionSet& set : all_kernels()) {
    const Call whole = adamw_call(chancy, rows * width, 3, 1);
    std::vector<Value> want = run(set, whole);
    for (std::int64_t part : {0, 1})
      for (std::int64_t skipped : {0, 50}) {
        const std::int64_t before = 13, count = rows * run_length - skipped;
        Call call = adamw_call(chancy, before + count + 6, 3, 1);
        call.updates = {{name_hash("another"), 0, 10, 7, 10, 10, 0},
                        {name_hash(name), before, count, part * run_length, run_length, width, skipped}};
        std::vector<Value> kept = call.operands;
        const auto number_of = [&](std::int64_t i) {
          return static_cast<std::size_t>(call.updates[1].number(i));
        };
        for (std::size_t k : {0u, 2u, 3u, 4u})
          for (std::int64_t i = 0; i < count; ++i)
            call.operands[k].set(static_cast<std::size_t>(before + i), whole.operands[k][number_of(i)]);
        std::vector<Value> got = run(set, call);
        for (std::size_t k : {0u, 3u, 4u}) {
          for (std::int64_t i = 0; i < count; ++i)
            ASSERT_EQ(got[k][static_cast<std::size_t>(before + i)], want[k][number_of(i)])
                << set.name << " operand " << k << " element " << i;
          for (std::int64_t i : {10L, 12L, before + count, before + count + 5})
            EXPECT_EQ(got[k][static_cast<std::size_t>(i)], kept[k][static_cast<std::size_t>(i)]) << "padding";
        }
      }
  }
}

// Over many seeds the mean is what was rounded: within five standard deviations, for all elements.
TEST(RoundingByChance, HasNoBias) {
  constexpr int trials = 4000;
  const InstructionSet set = all_kernels().back();
  Call call = adamw_call(chancy, 64, 3, 1);
  const std::vector<Value> want = unrounded(set, call);
  std::vector<double> sums[3] = {std::vector<double>(64), std::vector<double>(64), std::vector<double>(64)};
  for (int trial = 0; trial < trials; ++trial) {
    call.operands[9] = number(trial);
    const std::vector<Value> got = run_on(set, call, 1);
    const std::size_t places[] = {0, 3, 4};
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t i = 0; i < 64; ++i) sums[k][i] += got[places[k]][i];
  }
  for (std::size_t k = 0; k < 3; ++k)
    for (std::size_t i = 0; i < 64; ++i) {
      const double right = want[k][i], step = std::exp2(std::floor(std::log2(std::abs(right))) - 7);
      EXPECT_LE(std::abs(sums[k][i] / trials - right), 5 * 0.5 * step / std::sqrt(trials)) << k << " " << i;
    }
}

TEST(RoundingByChance, IsRefusedWithoutSeedOrElements) {
  for (const InstructionSet& set : all_kernels()) {
    Call call = adamw_call(chancy, 4, 1, 1);
    call.operands.pop_back();
    EXPECT_EQ(select_kernel(set, call), nullptr);
    call = sgd_call({DType::bf16, DType::f32, DType::f32, {}}, 4, 0, false, 1);
    call.operands.resize(7);
    EXPECT_EQ(select_kernel(set, call), nullptr);
    call = adamw_call(chancy, 4, 1, 1);
    call.updates.clear();
    EXPECT_THROW(run_on(set, call, 1), Error);
  }
}

TEST(Sgd, RefusesMomentumWithoutABuffer) {
  for (const InstructionSet& set : all_kernels()) {
    Call call = sgd_call(exact, 4, 0.9, false, 1);
    EXPECT_EQ(select_kernel(set, call), nullptr);
  }
}

TEST(Optimizers, RefuseStatesOfMixedTypes) {
  for (const InstructionSet& set : all_kernels()) {
    Call call = adamw_call(exact, 4, 1, 1);
    call.operands[4] = Value(DType::bf16, {4});
    EXPECT_EQ(select_kernel(set, call), nullptr);
    call = adamw_call(exact, 4, 1, 1);
    call.operands[1] = Value(DType::bf16, {4});
    EXPECT_EQ(select_kernel(set, call), nullptr);
    call = adamw_call({DType::f32, DType::f32, DType::f32, {}}, 4, 1, 1);
    call.operands[1] = Value(DType::u16, {4});
    EXPECT_EQ(select_kernel(set, call), nullptr);
    call.operands[1] = Value();
    call.operands[2] = Value(DType::bf16, {4});
    EXPECT_EQ(select_kernel(set, call), nullptr);
  }
}

TEST(SumSquares, AddsToTheSum) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (std::int64_t n : {1, 4095, 4096, 4097, 50'001, 16'790'000}) {
        if (n > 50'001 && type != DType::bf16) continue;  // where parts have several rows
        const Call call{"sum_squares", {random_value(type, {n}, 1), number(2.5)}};
        long double want = 2.5;
        for (double x : call.operands[0].numbers()) want += static_cast<long double>(x) * x;
        expect_close(run(set, call)[1], {static_cast<double>(want)}, 1e-13, "sum");
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
    for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
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

Decision decide(const InstructionSet& set, double sum, double loss, double limit, double halt = 0,
                const Value& scale = {}) {
  const Call call{"clip_factor",
                  {number(sum), number(loss), number(halt), number(-1), number(-1), number(-1), scale},
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

// As it is without a scale, but for the factor that takes it off the gradients.
TEST(ClipFactor, TakesTheScaleOfTheLossOff) {
  for (const InstructionSet& set : all_kernels())
    for (const double scale : {0x1p-8, 1.0, 0x1p16, 0x1p32})
      for (const double limit : {0.0, 1.0, 8.0})
        for (const double sum : {16.0, 12.5}) {
          const Decision plain = decide(set, sum, 1, limit),
                         scaled = decide(set, sum * scale * scale, 1, limit, 0, number(scale));
          EXPECT_EQ(scaled.norm, plain.norm);
          EXPECT_EQ(scaled.clip, plain.clip / scale);
          EXPECT_EQ(scaled.keep, 1);
        }
}

TEST(ClipFactor, KeepsNothingOnceHalted) {
  for (const InstructionSet& set : all_kernels()) {
    EXPECT_EQ(decide(set, 16, 1, 1, 1).keep, 0);
    EXPECT_EQ(decide(set, 16, 1, 1, 1).norm, 4);
  }
}

}  // namespace
}  // namespace prun::test::optimizer_test
