#include "lm_head/cuda.hpp"

#include <tuple>

#include "bias/cuda.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::lm_head_test {
namespace {

using LmHead = CudaTest;

// Logits as the CPU's head computes them from themselves: its weight is the identity, so that its dx is their
// gradient.
template <class T>
struct Case {
  std::int64_t rows, vocab;
  Value logits, weight, targets;

  Case(std::int64_t r, std::int64_t v)
      : rows(r),
        vocab(v),
        logits(random_value(dtype_of<T>(), {1, r, v}, 1, 8)),
        weight(dtype_of<T>(), {v, v}) {
    for (std::int64_t i = 0; i < v; ++i) weight.set(static_cast<std::size_t>(i * v + i), 1);
    std::vector<std::int64_t> drawn;
    for (std::int64_t i = 0; i < r; ++i) drawn.push_back(i % 5 == 3 ? -1 : i * 7 % v);
    targets = integers(DType::i32, {1, r}, drawn);
  }
};

// A row's bytes are followed by room up to the stride, which must be left alone.
template <class T>
Value strided(const Value& logits, std::int64_t rows, std::int64_t vocab, std::int64_t stride) {
  Value result(dtype_of<T>(), {rows, stride});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < stride; ++c)
      result.set(static_cast<std::size_t>(r * stride + c),
                 c < vocab ? logits[static_cast<std::size_t>(r * vocab + c)] : 5);
  return result;
}

template <class T>
void expect_rows(const Value& got, const Value& want, std::int64_t rows, std::int64_t vocab,
                 std::int64_t stride, double close) {
  expect_close(got, strided<T>(want, rows, vocab, stride).numbers(), close, "gradient");
}

template <class Body>
void for_cases(Body body) {
  for_types([&]<class T>(std::int64_t offset) {
    for (const auto& [rows, vocab] : {std::pair{1, 1}, {3, 7}, {9, 64}, {40, 333}, {5, 1000}})
      for (std::int64_t stride : {vocab, (vocab + 15) / 8 * 8}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(vocab) + " stride " +
                     std::to_string(stride));
        body.template operator()<T>(Case<T>(rows, vocab), stride, offset);
      }
  });
}

TEST_F(LmHead, CrossEntropyWithItsGradientInPlace) {
  for_cases([]<class T>(const Case<T>& c, std::int64_t stride, std::int64_t offset) {
    const double scale = 0.125;
    const std::vector<Value> want = cpu("lm_head", {c.logits, c.weight, c.targets, number(scale), number(1.5),
                                                    Value(), Value(dtype_of<T>(), {1, c.rows, c.vocab})});
    OnDevice logits(strided<T>(c.logits, c.rows, c.vocab, stride), offset), targets(c.targets);
    OnDevice scales(number(scale)), loss(number(1.5));
    {
      const DeviceWorkspace workspace(8 * c.rows);
      cuda::cross_entropy<T>({logits.as<T>(), c.rows, c.vocab, stride, targets.as<std::int32_t>()},
                             scales.as<double>(), loss.as<double>(), workspace.data(), nullptr);
    }
    expect_rows<T>(logits.value(), want[6], c.rows, c.vocab, stride, tolerance(dtype_of<T>()));
    expect_close(loss.value(), want[4].numbers(), std::is_same_v<T, double> ? 1e-12 : 1e-6, "loss");
  });
}

cuda::HeadRegular regular(std::int64_t words) { return {0.03, 0.2, words}; }

TEST_F(LmHead, CrossEntropyWithZLossAndSmoothing) {
  for_cases([]<class T>(const Case<T>& c, std::int64_t stride, std::int64_t offset) {
    const std::vector<Value> want = cpu("lm_head_regularized",
                                        {c.logits, c.weight, c.targets, number(0.125), number(1.5), Value(),
                                         Value(dtype_of<T>(), {1, c.rows, c.vocab})},
                                        {{.f = 0.03}, {.f = 0.2}});
    OnDevice logits(strided<T>(c.logits, c.rows, c.vocab, stride), offset), targets(c.targets);
    OnDevice scales(number(0.125)), loss(number(1.5));
    {
      const DeviceWorkspace workspace(8 * c.rows);
      cuda::cross_entropy<T>({logits.as<T>(), c.rows, c.vocab, stride, targets.as<std::int32_t>()},
                             scales.as<double>(), loss.as<double>(), workspace.data(), nullptr,
                             regular(c.vocab));
    }
    expect_rows<T>(logits.value(), want[6], c.rows, c.vocab, stride, tolerance(dtype_of<T>()));
    expect_close(loss.value(), want[4].numbers(), std::is_same_v<T, double> ? 1e-12 : 2e-6, "loss");
  });
}

TEST_F(LmHead, PartsWithZLossAndSmoothing) {
  for_cases([]<class T>(const Case<T>& c, std::int64_t stride, std::int64_t offset) {
    using C = cuda::Compute<T>;
    const DType sums = sum_type<T>();
    const double close = 8 * tolerance(sums);
    const std::int64_t first = c.vocab / 2, whole = first + c.vocab;
    const Value row(sums, {1, c.rows});
    const std::vector<Value> scan =
        cpu("lm_head_regularized_scan", {c.logits, c.weight, c.targets, row, row, row},
            {{.i = whole}, {.f = 0.2}}, {{1, 0, first}});
    OnDevice logits(strided<T>(c.logits, c.rows, c.vocab, stride), offset), targets(c.targets);
    OnDevice largest(sums, {c.rows}), sum(sums, {c.rows}), wanted(sums, {c.rows}), lse(sums, {c.rows});
    const cuda::Logits<T> rows = {logits.as<T>(), c.rows, c.vocab, stride, targets.as<std::int32_t>()};
    cuda::lm_head_scan<T>(rows, first, whole, largest.as<C>(), sum.as<C>(), wanted.as<C>(), nullptr,
                          regular(whole));
    expect_close(wanted.value(), scan[5].numbers(), close, "hit");
    const std::vector<Value> loss_want = cpu(
        "lm_head_regularized_loss", {scan[3], scan[4], scan[5], c.targets, number(0.5), row}, {{.f = 0.03}});
    OnDevice loss(number(0.5)), scale(number(0.25));
    {
      const DeviceWorkspace workspace(8 * c.rows);
      cuda::lm_head_loss(largest.as<C>(), sum.as<C>(), wanted.as<C>(), targets.as<std::int32_t>(),
                         loss.as<double>(), lse.as<C>(), c.rows, workspace.data(), nullptr, regular(whole));
    }
    expect_close(loss.value(), loss_want[4].numbers(), close, "loss");
    cuda::lm_head_grad<T>(rows, first, lse.as<C>(), scale.as<double>(), nullptr, regular(whole));
    const Value want = cpu("lm_head_regularized_grad",
                           {c.logits, c.weight, c.targets, loss_want[5], number(0.25), Value(),
                            Value(dtype_of<T>(), {1, c.rows, c.vocab})},
                           {{.i = whole}, {.f = 0.03}, {.f = 0.2}}, {{1, 0, first}})[6];
    expect_rows<T>(logits.value(), want, c.rows, c.vocab, stride, tolerance(dtype_of<T>()));
  });
}

// Logits are rounded to their type once more where they are bounded.
TEST_F(LmHead, BoundedLogits) {
  for_cases([]<class T>(const Case<T>& c, std::int64_t stride, std::int64_t offset) {
    const double softcap = 1.5;
    const std::vector<Value> want = cpu("lm_head_regularized",
                                        {c.logits, c.weight, c.targets, number(0.125), number(1.5), Value(),
                                         Value(dtype_of<T>(), {1, c.rows, c.vocab})},
                                        {{.f = 0.03}, {.f = 0.2}, {.f = softcap}});
    OnDevice logits(strided<T>(c.logits, c.rows, c.vocab, stride), offset), targets(c.targets);
    OnDevice scales(number(0.125)), loss(number(1.5));
    cuda::HeadRegular by = regular(c.vocab);
    by.softcap = softcap;
    {
      const DeviceWorkspace workspace(8 * c.rows);
      const cuda::Logits<T> rows = {logits.as<T>(), c.rows, c.vocab, stride, targets.as<std::int32_t>()};
      cuda::bound_logits(rows, softcap, nullptr);
      cuda::cross_entropy<T>(rows, scales.as<double>(), loss.as<double>(), workspace.data(), nullptr, by);
    }
    const bool narrow = sizeof(T) == 2;
    expect_rows<T>(logits.value(), want[6], c.rows, c.vocab, stride,
                   (narrow ? 2 : 1) * tolerance(dtype_of<T>()));
    const double rounded = narrow ? 1e-2 : 2e-6;
    expect_close(loss.value(), want[4].numbers(), std::is_same_v<T, double> ? 1e-12 : rounded, "loss");
  });
}

// Rows that fit into shared memory twice, once and not at all.
TEST_F(LmHead, LongRows) {
  for (const auto& [vocab, stride] :
       {std::pair{50'257, 50'304}, {50'257, 50'257}, {128'256, 128'256}, {300'001, 300'008}}) {
    SCOPED_TRACE(vocab);
    const std::int64_t rows = 3, n = vocab;
    const Value x = random_value(DType::bf16, {rows, n}, 1, 8);
    const Value targets = integers(DType::i32, {rows}, {0, n - 1, 777});
    Value want(DType::f64, {rows, n});
    double loss_want = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto at = [&](std::int64_t c) { return static_cast<std::size_t>(r * n + c); };
      const auto target = static_cast<std::int64_t>(targets[static_cast<std::size_t>(r)]);
      double sum = 0;
      for (std::int64_t c = 0; c < n; ++c) sum += std::exp(x[at(c)]);
      for (std::int64_t c = 0; c < n; ++c) want.set(at(c), std::exp(x[at(c)]) / sum - (c == target ? 1 : 0));
      loss_want += std::log(sum) - x[at(target)];
    }
    OnDevice logits(strided<bf16>(x, rows, n, stride)), ids(targets), scale(number(1)), loss(number(0));
    const DeviceWorkspace workspace(8 * rows);
    cuda::cross_entropy<bf16>({logits.as<bf16>(), rows, n, stride, ids.as<std::int32_t>()},
                              scale.as<double>(), loss.as<double>(), workspace.data(), nullptr);
    const Value got = logits.value();
    double worst = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        const double g = got[static_cast<std::size_t>(r * stride + c)],
                     w = want[static_cast<std::size_t>(r * n + c)];
        worst = std::max(worst, std::abs(g - w) / (std::abs(w) + 1e-30));
      }
    EXPECT_LT(worst, 0.005) << "relative, of gradients rounded to bf16";
    expect_close(loss.value(), {loss_want}, 1e-6, "loss");
  }
}

// Of row 0 the last of two, of row 1 none, of row 2 the first.
TEST_F(LmHead, LogitsOfThePositionAskedFor) {
  for_types([]<class T>(std::int64_t offset) {
    for (const auto& [seq, width, vocab] : {std::tuple{1, 1, 1}, {5, 37, 203}, {70, 64, 9}}) {
      const DType type = dtype_of<T>();
      const Value x = random_value(type, {3, seq, width}, 1), weight = random_value(type, {vocab, width}, 2);
      std::vector<std::int64_t> asked(static_cast<std::size_t>(3 * seq), -1);
      for (const std::int64_t at : {std::int64_t{0}, std::int64_t{seq - 1}, std::int64_t{2 * seq}})
        asked[static_cast<std::size_t>(at)] = 0;
      const Value targets = integers(DType::i32, {3, seq}, asked),
                  none(OpShape::statistics(type), {3, vocab});
      OnDevice on_x(x, offset), on_weight(weight, offset), ids(targets), logits(none);
      cuda::lm_head_logits<T>(on_x.as<T>(), on_weight.as<T>(), ids.as<std::int32_t>(),
                              logits.as<cuda::Compute<T>>(), {3, seq, width, vocab}, nullptr);
      expect_close(logits.value(), cpu("lm_head_logits", {x, weight, targets, none})[3].numbers(),
                   tolerance(OpShape::statistics(type)), "logits");
      const Value bias = random_value(type, {vocab}, 3);
      OnDevice on_bias(bias, offset);
      cuda::lm_head_logits<T>(on_x.as<T>(), on_weight.as<T>(), ids.as<std::int32_t>(),
                              logits.as<cuda::Compute<T>>(), {3, seq, width, vocab, 0.4}, nullptr,
                              on_bias.as<T>());
      expect_close(logits.value(),
                   cpu("lm_head_logits", {x, weight, targets, none, bias}, {{.f = 0.4}})[3].numbers(),
                   tolerance(OpShape::statistics(type)), "logits with a bias");
    }
  });
}

// Where a product cannot add a bias itself, it lies in the logits' rows in front, and nothing between these.
TEST_F(LmHead, ABiasIsPutIntoRows) {
  for_types([]<class T>(std::int64_t offset) {
    constexpr std::int64_t rows = 5, vocab = 37, stride = 64;
    const Value bias = random_value(dtype_of<T>(), {vocab}, 1),
                x = random_value(dtype_of<T>(), {rows, vocab}, 2);
    OnDevice from(bias, offset), to(strided<T>(zeros(x), rows, vocab, stride), offset);
    Value want(dtype_of<T>(), {rows, vocab});
    for (std::size_t i = 0; i < want.size(); ++i) want.set(i, bias[i % vocab]);
    cuda::add_bias<T>(nullptr, from.as<T>(), to.as<T>(), rows, vocab, stride, nullptr);
    EXPECT_EQ(to.value().bytes(), strided<T>(want, rows, vocab, stride).bytes());
    OnDevice on(strided<T>(x, rows, vocab, stride), offset);
    for (std::size_t i = 0; i < want.size(); ++i) want.set(i, bias[i % vocab] + x[i]);
    cuda::add_bias<T>(on.as<T>(), from.as<T>(), on.as<T>(), rows, vocab, stride, nullptr);
    expect_close(on.value(), strided<T>(want, rows, vocab, stride).numbers(), tolerance(dtype_of<T>()),
                 "sum");
  });
}

// Of rows of logits that have become gradients, and of what lies between two rows nothing.
TEST_F(LmHead, GradientOfABiasIsTheSumOfRows) {
  for_sums([&]<class T, class S>(std::int64_t offset) {
    for (const auto& [rows, vocab, stride] :
         {std::tuple{1, 1, 64}, {70, 333, 384}, {300, 64, 64}, {40, 128, 192}})
      for (const bool begins : {false, true}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(vocab) + (begins ? ", begun" : ", added"));
        const Value logits = random_value(dtype_of<T>(), {rows, vocab}, 1),
                    before = random_value(dtype_of<S>(), {vocab}, 2);
        std::vector<double> want(static_cast<std::size_t>(vocab));
        for (std::size_t i = 0; i < logits.size(); ++i) want[i % want.size()] += logits[i];
        for (std::size_t i = 0; i < want.size(); ++i) want[i] += begins ? 0 : before[i];
        OnDevice dy(strided<T>(logits, rows, vocab, stride), offset), dbias(begins ? poison(before) : before);
        {
          const DeviceWorkspace workspace(cuda::bias_grad_workspace<T>(rows, vocab));
          cuda::strided_bias_grad<T, S>(dy.as<T>(), stride, {dbias.as<S>(), begins}, rows, vocab,
                                        workspace.data(), nullptr);
        }
        expect_close(dbias.value(), want, close_sums<S>(40), "dbias");
      }
  });
}

TEST_F(LmHead, TargetsThatDoNotCountOrDoNotExist) {
  const Value x = random_value(DType::f32, {2, 40}, 1);
  for (std::int64_t target : {-1, 40}) {
    OnDevice logits(x), ids(integers(DType::i32, {2}, {target, target})), scale(number(1)), loss(number(0));
    const DeviceWorkspace workspace(16);
    cuda::cross_entropy<float>({logits.as<float>(), 2, 40, 40, ids.as<std::int32_t>()}, scale.as<double>(),
                               loss.as<double>(), workspace.data(), nullptr);
    EXPECT_EQ(logits.value().bytes(), Value(DType::f32, {2, 40}).bytes());
    EXPECT_EQ(std::isnan(loss.value()[0]), target == 40);
  }
}

TEST_F(LmHead, InfinityAndNaNShowInTheLoss) {
  for (double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    Value x = random_value(DType::f32, {1, 5000}, 1);
    x.set(3, bad);
    OnDevice logits(x), ids(integers(DType::i32, {1}, {9})), scale(number(1)), loss(number(0));
    const DeviceWorkspace workspace(8);
    cuda::cross_entropy<float>({logits.as<float>(), 1, 5000, 5000, ids.as<std::int32_t>()},
                               scale.as<double>(), loss.as<double>(), workspace.data(), nullptr);
    EXPECT_FALSE(std::isfinite(loss.value()[0]));
  }
}

// The steps over a part of the vocabulary, each against the CPU's.
TEST_F(LmHead, PartsOfASplitVocabulary) {
  for_cases([]<class T>(const Case<T>& c, std::int64_t stride, std::int64_t offset) {
    using C = cuda::Compute<T>;
    const DType sums = sum_type<T>();
    const double close = 8 * tolerance(sums);
    const std::int64_t first = c.vocab / 2, whole = first + c.vocab;  // this part is the last of two
    Value shifted = c.targets;
    for (std::size_t i = 0; i < shifted.size(); ++i)
      if (shifted[i] >= 0 && i % 2) shifted.set(i, shifted[i] + static_cast<double>(first));
    const Value row(sums, {1, c.rows});
    const std::vector<Value> scan =
        cpu("lm_head_scan", {c.logits, c.weight, shifted, row, row, row}, {{.i = whole}}, {{1, 0, first}});
    OnDevice logits(strided<T>(c.logits, c.rows, c.vocab, stride), offset), targets(shifted);
    OnDevice largest(sums, {c.rows}), sum(sums, {c.rows}), wanted(sums, {c.rows});
    const cuda::Logits<T> rows = {logits.as<T>(), c.rows, c.vocab, stride, targets.as<std::int32_t>()};
    cuda::lm_head_scan<T>(rows, first, whole, largest.as<C>(), sum.as<C>(), wanted.as<C>(), nullptr);
    EXPECT_EQ(largest.value().bytes(), scan[3].bytes());
    expect_close(sum.value(), scan[4].numbers(), close, "sum");
    EXPECT_EQ(wanted.value().bytes(), scan[5].bytes());

    Value gmax = scan[3];
    for (std::size_t i = 0; i < gmax.size(); ++i) gmax.set(i, gmax[i] + 0.5);
    OnDevice gmaxs(gmax), scaled(sums, {c.rows}), lse(sums, {c.rows}), loss(number(0.5));
    cuda::lm_head_rescale(largest.as<C>(), gmaxs.as<C>(), sum.as<C>(), scaled.as<C>(), c.rows, nullptr);
    const Value scaled_want = cpu("lm_head_rescale", {scan[3], gmax, scan[4], row})[3];
    expect_close(scaled.value(), scaled_want.numbers(), close, "scaled");
    const std::vector<Value> loss_want =
        cpu("lm_head_loss", {gmax, scaled_want, scan[5], shifted, number(0.5), row});
    {
      const DeviceWorkspace workspace(8 * c.rows);
      cuda::lm_head_loss(gmaxs.as<C>(), scaled.as<C>(), wanted.as<C>(), targets.as<std::int32_t>(),
                         loss.as<double>(), lse.as<C>(), c.rows, workspace.data(), nullptr);
    }
    expect_close(loss.value(), loss_want[4].numbers(), close, "loss");
    expect_close(lse.value(), loss_want[5].numbers(), close, "lse");

    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < c.rows; ++i) numbers.push_back(i % 4);
    const Value groups = integers(DType::i32, {1, c.rows}, numbers), none(DType::f64, {1, 3, 2});
    OnDevice of(groups), by_group(none);
    cuda::lm_head_groups(gmaxs.as<C>(), scaled.as<C>(), wanted.as<C>(), targets.as<std::int32_t>(),
                         of.as<std::int32_t>(), by_group.as<double>(), 3, c.rows, nullptr,
                         cuda::HeadRegular{.z = 0.03});
    expect_close(by_group.value(),
                 cpu("lm_head_groups", {gmax, scaled_want, scan[5], shifted, groups, none}, {{.f = 0.03}})[5]
                     .numbers(),
                 close, "sums by group");

    OnDevice scale(number(0.25));
    cuda::lm_head_grad<T>(rows, first, lse.as<C>(), scale.as<double>(), nullptr);
    const Value want = cpu("lm_head_grad",
                           {c.logits, c.weight, shifted, loss_want[5], number(0.25), Value(),
                            Value(dtype_of<T>(), {1, c.rows, c.vocab})},
                           {}, {{1, 0, first}})[6];
    expect_rows<T>(logits.value(), want, c.rows, c.vocab, stride, tolerance(dtype_of<T>()));
  });
}

}  // namespace
}  // namespace prun::test::lm_head_test
