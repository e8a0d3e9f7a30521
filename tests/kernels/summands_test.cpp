// 1-bit Adam as its ops make it, beside DeepSpeed's rule: what a rank sends are signs of its momentum and of
// what they left out before, and what all ranks get are signs of these signs' mean. DeepSpeed scales signs by
// the root mean square of a tensor, or of a rank's share of one; here a block is that.
#include <cmath>

#include "prun/block_codes.hpp"
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, summands_test)

namespace prun::test::summands_test {
namespace {

constexpr std::int64_t ranks = 3, blocks = 4, n = blocks * code_block, bytes = blocks * code_block_bytes(1);
constexpr double beta1 = 0.9, beta2 = 0.95, eps = 1e-6, lr = 1e-2;

Attr whole(std::int64_t i) {
  Attr attr;
  attr.i = i;
  return attr;
}
Attr real(double f) {
  Attr attr;
  attr.f = f;
  return attr;
}
Value number(double x) { return Value(DType::f64, {}, {x}); }

using Numbers = std::vector<double>;

// compressed_allreduce of DeepSpeed, block by block, each the tensor of a process group of its own.
class DeepSpeed {
 public:
  // x: of each rank. What every rank has of it.
  Numbers mean_in_signs(std::vector<Numbers> x) {
    Numbers mean(n, 0);
    for (std::size_t r = 0; r < ranks; ++r) {
      const Numbers sent = compressed(x[r], worker_errors_[r]);
      for (std::size_t i = 0; i < n; ++i) mean[i] += sent[i] / ranks;
    }
    return compressed(mean, server_error_);
  }

 private:
  static Numbers compressed(const Numbers& x, Numbers& error) {
    Numbers sent(n);
    for (std::size_t b = 0; b < n; b += code_block) {
      double squares = 0;
      for (std::size_t i = b; i < b + code_block; ++i) squares += std::pow(x[i] + error[i], 2);
      const double scale = static_cast<float>(std::sqrt(squares) / std::sqrt(double{code_block}));
      for (std::size_t i = b; i < b + code_block; ++i) {
        sent[i] = x[i] + error[i] >= 0 ? scale : -scale;
        error[i] = x[i] + error[i] - sent[i];
      }
    }
    return sent;
  }

  std::vector<Numbers> worker_errors_ = std::vector<Numbers>(ranks, Numbers(n, 0));
  Numbers server_error_ = Numbers(n, 0);
};

// One step of what core/placement/summand_exchanges makes of an update, the ranks' codes side by side.
class Steps {
 public:
  explicit Steps(const InstructionSet& set) : set_(set) {}

  void take(const Value& gradients) {
    const Value summands = run(set_, {"momentum_summand",
                                      {gradients, m, number(1), Value(DType::f64, {ranks, n})},
                                      {real(beta1), whole(ranks)}})[3];
    const Value part =
        run(set_, {"sum_decoded", {encoded(summands, error, ranks), Value(DType::f64, {n})}, decode})[1];
    const Value sum =
        run(set_, {"decode", {encoded(part, sum_error, 1), Value(DType::f64, {1, n})}, decode})[1];
    const std::vector<Value> after = run(set_, {"frozen_direction",
                                                {sum, m, v, number(1), Value(DType::f64, {n})},
                                                {real(eps), real(beta2), whole(0)}});
    m = after[1];
    for (std::size_t i = 0; i < n; ++i) weights[i] -= lr * after[4][i];
  }

  Value m = Value(DType::f64, {n}), v = random_value(DType::f64, {n}, 9);
  Value error = Value(DType::f64, {ranks, n}), sum_error = Value(DType::f64, {1, n});
  Numbers weights = Numbers(n, 0);

 private:
  Value encoded(const Value& x, Value& left, std::int64_t rows) {
    const std::vector<Value> after =
        run(set_, {"encode_onward", {x, left, number(1), Value(DType::u8, {rows, bytes})}, {whole(1)}});
    left = after[1];
    return after[3];
  }

  const InstructionSet& set_;
  std::vector<Attr> decode = {whole(1), whole(static_cast<int>(DType::f64))};
};

// Each rank's gradient is its share of the mean, as summands of the step's sum are here.
TEST(Summands, AreSummedByDeepSpeedsRuleFor100Steps) {
  const std::vector<InstructionSet> sets = all_kernels();
  for (const InstructionSet& set : sets) {
    const unsigned count = &set == &sets.back() ? 100 : 5;
    Steps steps(set);
    for (std::size_t i = 0; i < n; ++i) steps.v.set(i, std::abs(steps.v[i]));
    DeepSpeed peer;
    Numbers m(n, 0), weights(n, 0);
    for (unsigned step = 0; step < count; ++step) {
      const Value gradients = random_value(DType::f64, {ranks, n}, 100 + step);
      steps.take(gradients);
      std::vector<Numbers> momenta(ranks, m);
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < n; ++i)
          momenta[r][i] = beta1 * m[i] + (1 - beta1) * gradients[r * n + i] * ranks;
      m = peer.mean_in_signs(momenta);
      for (std::size_t i = 0; i < n; ++i) weights[i] -= lr * m[i] / (std::sqrt(steps.v[i]) + eps);
    }
    for (std::size_t i = 0; i < n; ++i)
      EXPECT_NEAR(steps.weights[i], weights[i], 1e-4 * std::abs(weights[i]) + 1e-6) << i;
  }
}

TEST(Summands, HaveTheSignsAndTheRootMeanSquareOfTheirBlock) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
      const Value x = random_value(type, {n}, 4);
      const Value codes = run(set, {"encode", {x, Value(DType::u8, {bytes})}, {whole(1)}})[1];
      const Value y = run(set, {"decode", {codes, Value(DType::f64, {n})}, {whole(1), whole(0)}})[1];
      for (std::size_t b = 0; b < n; b += code_block) {
        double squares = 0;
        for (std::size_t i = b; i < b + code_block; ++i) squares += x[i] * x[i];
        const double scale = std::sqrt(squares / code_block);
        for (std::size_t i = b; i < b + code_block; ++i)
          EXPECT_NEAR(y[i], x[i] < 0 ? -scale : scale, 1e-6 * scale);
      }
    }
}

// The same of codes of eight bits.
TEST(Summands, WhatCodesLeaveOutComesWithTheNextNumbers) {
  for (const InstructionSet& set : all_kernels())
    for (const std::int64_t bits : {8, 4, 1}) {
      const Value x = random_value(DType::f32, {n}, 4), before = random_value(DType::f32, {n}, 5);
      const Value blank(DType::u8, {blocks * code_block_bytes(bits)});
      const std::vector<Value> after =
          run(set, {"encode_onward", {x, before, number(1), blank}, {whole(bits)}});
      const Value y = run(set, {"decode", {after[3], Value(DType::f32, {n})}, {whole(bits), whole(1)}})[1];
      for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(after[1][i], x[i] + before[i] - y[i], 1e-6) << i;
      EXPECT_EQ(run(set, {"encode_onward", {x, before, number(0), blank}, {whole(bits)}})[1].numbers(),
                before.numbers());
    }
}

TEST(Summands, OfWhatIsNotFiniteAreNaNThroughoutTheBlock) {
  for (const InstructionSet& set : all_kernels())
    for (const double odd : {std::nan(""), HUGE_VAL}) {
      Value x = random_value(DType::f32, {n}, 7);
      x.set(code_block + 17, odd);
      const Value codes = run(set, {"encode", {x, Value(DType::u8, {bytes})}, {whole(1)}})[1];
      const Value y = run(set, {"decode", {codes, Value(DType::f32, {n})}, {whole(1), whole(1)}})[1];
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(std::isnan(y[i]), i / code_block == 1) << i;
    }
}

TEST(Summands, OfARankAloneAreHeldInTheirOrder) {
  for (const InstructionSet& set : all_kernels()) {
    Value rows(DType::f32, {ranks, n});
    for (unsigned r = 0; r < ranks; ++r)
      rows = run(set, {"keep_summand", {random_value(DType::f32, {n}, r), rows}, {}})[1];
    for (unsigned r = 0; r < ranks; ++r) {
      const Value x = random_value(DType::f32, {n}, r);
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(rows[r * n + i], x[i]);
    }
  }
}

TEST(Summands, MakeNoStepThatIsNotKept) {
  for (const InstructionSet& set : all_kernels()) {
    const Value m = random_value(DType::f32, {n}, 1), sum = random_value(DType::f32, {n}, 2);
    const std::vector<Value> after = run(set, {"frozen_direction",
                                               {sum, m, sum, number(0), Value(DType::f32, {n})},
                                               {real(eps), real(beta2), whole(7)}});
    EXPECT_EQ(after[1].numbers(), m.numbers());
  }
}

}  // namespace
}  // namespace prun::test::summands_test
