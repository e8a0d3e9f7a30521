#include "lm_head/cuda_rows.hpp"

#include "tests/cuda/gemm_fixture.hpp"

namespace prun::test::lm_head_rows_test {
namespace {

using cuda::HeadShape;
using cuda::LogitRows;

using HeadRows = GemmTest;

// What two bytes cost: logits and their gradients are rounded, where the CPU keeps them in fp32.
template <class T>
double close() {
  if (std::is_same_v<T, f16>) return 3e-3;
  return std::is_same_v<T, bf16> ? 2e-2 : 16 * tolerance(sum_type<T>());
}
template <class T>
double close_loss() {
  if (std::is_same_v<T, f16>) return 2e-4;
  return std::is_same_v<T, bf16> ? 1e-3 : 4 * tolerance(sum_type<T>());
}

// A head on the host, the gradient of its weight in S.
template <class T, class S = cuda::Compute<T>>
struct Case {
  std::int64_t rows, width, vocab;
  Value x, weight, targets, dweight;

  Case(std::int64_t r, std::int64_t w, std::int64_t v)
      : rows(r),
        width(w),
        vocab(v),
        x(random_value(dtype_of<T>(), {1, r, w}, 1)),
        weight(random_value(dtype_of<T>(), {v, w}, 2)),
        dweight(random_value(dtype_of<S>(), {v, w}, 3)) {
    std::vector<std::int64_t> drawn;
    for (std::int64_t i = 0; i < r; ++i) drawn.push_back(i % 5 == 3 ? -1 : i * 7 % v);
    targets = integers(DType::i32, {1, r}, drawn);
  }
  Value dx() const { return Value(dtype_of<T>(), {1, rows, width}); }
  Value no_dweight() const { return zeros(dweight); }
};

// Its operands on the device.
template <class T, class S = cuda::Compute<T>>
struct OnGpu {
  HeadShape shape;
  OnDevice x, weight, targets, scale, dweight, dx;

  OnGpu(const Case<T, S>& c, bool first, std::int64_t offset)
      : shape{.rows = c.rows, .width = c.width, .vocab = c.vocab},
        x(c.x, offset),
        weight(c.weight, offset),
        targets(c.targets),
        scale(number(0.25)),
        dweight(first ? OnDevice(dtype_of<S>(), {c.vocab, c.width}, offset) : OnDevice(c.dweight, offset)),
        dx(dtype_of<T>(), {1, c.rows, c.width}, offset),
        first_(first) {
    shape.alignment = cuda::alignment_of({x.as<T>(), weight.as<T>(), dweight.as<S>(), dx.as<T>()});
  }
  cuda::HeadInput<T> input() const { return {x.as<T>(), weight.as<T>(), targets.as<std::int32_t>()}; }
  cuda::HeadGradients<T, S> gradients() const {
    return {scale.as<double>(), shape.dweight ? dweight.as<S>() : nullptr, first_, dx.as<T>()};
  }

 private:
  bool first_;
};

// In one chunk, in whole chunks, and with a shorter last one.
template <class Body>
void for_cases(Body body) {
  for_sums([&]<class T, class S>(std::int64_t offset) {
    for (const auto& [rows, width, vocab] :
         {std::array<std::int64_t, 3>{1, 1, 1}, {3, 7, 5}, {40, 33, 333}, {512, 24, 129}, {600, 64, 1000}}) {
      SCOPED_TRACE("rows " + std::to_string(rows) + ", width " + std::to_string(width) + ", vocab " +
                   std::to_string(vocab));
      body.template operator()<T, S>(Case<T, S>(rows, width, vocab), offset);
    }
  });
}

TEST_F(HeadRows, LossAndGradientsInChunks) {
  for_cases([&]<class T, class S>(const Case<T, S>& c, std::int64_t offset) {
    for (bool first : {false, true})
      for (std::int64_t most_bytes : {std::int64_t{1}, cuda::most_logit_bytes}) {
        SCOPED_TRACE((first ? "dweight written first, " : "dweight added, ") + std::to_string(most_bytes) +
                     " bytes of logits");
        const std::vector<Value> want = cpu_sums(
            "lm_head",
            {c.x, c.weight, c.targets, number(0.25), number(1.5), first ? c.no_dweight() : c.dweight, c.dx()},
            {5});
        OnGpu<T, S> on(c, first, offset);
        OnDevice loss(number(1.5));
        on.shape.most_bytes = most_bytes;
        {
          const DeviceWorkspace workspace(cuda::lm_head_workspace<T>(on.shape));
          LogitRows<T, S>(gemm(), on.shape)
              .lm_head(on.input(), on.gradients(), loss.as<double>(), workspace.data(), nullptr);
        }
        expect_close(loss.value(), want[4].numbers(), close_loss<T>(), "loss");
        expect_close(on.dweight.value(), want[5].numbers(), close<T>(), "dweight");
        expect_close(on.dx.value(), want[6].numbers(), close<T>(), "dx");
      }
  });
}

TEST_F(HeadRows, WithABiasAndItsGradient) {
  for_cases([&]<class T, class S>(const Case<T, S>& c, std::int64_t offset) {
    const Value bias = random_value(dtype_of<T>(), {c.vocab}, 21),
                before = random_value(dtype_of<S>(), {c.vocab}, 22);
    for (bool first : {false, true}) {
      const Value begun = first ? zeros(before) : before;
      const std::vector<Value> want = cpu_sums("lm_head",
                                               {c.x, c.weight, c.targets, number(0.25), number(1.5),
                                                first ? c.no_dweight() : c.dweight, c.dx(), bias, begun},
                                               {5, 8});
      OnGpu<T, S> on(c, first, offset);
      OnDevice on_bias(bias, offset), dbias(first ? poison(before) : before), loss(number(1.5));
      on.shape.bias = on.shape.dbias = true;
      on.shape.most_bytes = 1;
      on.shape.alignment = std::min(on.shape.alignment, cuda::alignment_of({on_bias.as<T>()}));
      cuda::HeadInput<T> input = on.input();
      input.bias = on_bias.as<T>();
      cuda::HeadGradients<T, S> gradients = on.gradients();
      gradients.dbias = {dbias.as<S>(), first};
      {
        const DeviceWorkspace workspace(cuda::lm_head_workspace<T>(on.shape));
        LogitRows<T, S>(gemm(), on.shape)
            .lm_head(input, gradients, loss.as<double>(), workspace.data(), nullptr);
      }
      expect_close(loss.value(), want[4].numbers(), close_loss<T>(), "loss");
      expect_close(on.dweight.value(), want[5].numbers(), close<T>(), "dweight");
      expect_close(on.dx.value(), want[6].numbers(), close<T>(), "dx");
      expect_close(dbias.value(), want[8].numbers(), close<T>(), "dbias");
    }
  });
}

TEST_F(HeadRows, WithoutAGradientOfTheWeight) {
  for_cases([&]<class T, class S>(const Case<T, S>& c, std::int64_t offset) {
    const std::vector<Value> want =
        cpu("lm_head", {c.x, c.weight, c.targets, number(0.25), number(0), Value(), c.dx()});
    OnGpu<T, S> on(c, false, offset);
    OnDevice loss(number(0));
    on.shape.dweight = false;
    {
      const DeviceWorkspace workspace(cuda::lm_head_workspace<T>(on.shape));
      LogitRows<T, S>(gemm(), on.shape)
          .lm_head(on.input(), on.gradients(), loss.as<double>(), workspace.data(), nullptr);
    }
    expect_close(loss.value(), want[4].numbers(), close_loss<T>(), "loss");
    expect_close(on.dx.value(), want[6].numbers(), close<T>(), "dx");
    EXPECT_EQ(on.dweight.value().bytes(), c.dweight.bytes());
  });
}

// Each of two parts of the vocabulary against the CPU's.
TEST_F(HeadRows, PartsOfASplitVocabulary) {
  for_cases([&]<class T, class S>(const Case<T, S>& c, std::int64_t offset) {
    using C = cuda::Compute<T>;
    const DType sums = sum_type<T>();
    for (const std::int64_t begin : {std::int64_t{0}, c.vocab}) {
      SCOPED_TRACE("the part from " + std::to_string(begin));
      const std::int64_t whole = 2 * c.vocab;
      Case<T, S> part = c;
      for (std::size_t i = 0; i < part.targets.size(); ++i)
        if (part.targets[i] >= 0 && i % 2)
          part.targets.set(i, part.targets[i] + static_cast<double>(c.vocab));
      const Value row(sums, {1, c.rows});
      const std::vector<Value> scan = cpu("lm_head_scan", {part.x, part.weight, part.targets, row, row, row},
                                          {{.i = whole}}, {{1, 0, begin}});
      OnGpu<T, S> on(part, true, offset);
      on.shape.most_bytes = 1;
      OnDevice largest(sums, {1, c.rows}), sum(sums, {1, c.rows}), wanted(sums, {1, c.rows});
      {
        HeadShape shape = on.shape;
        shape.gradients = false;
        const DeviceWorkspace workspace(cuda::lm_head_workspace<T>(shape));
        LogitRows<T>(gemm(), shape)
            .lm_head_scan(on.input(), {begin, whole}, largest.as<C>(), sum.as<C>(), wanted.as<C>(),
                          workspace.data(), nullptr);
      }
      // A largest logit that is rounded moves the sum above it, not what the two say together.
      const auto joined = [](const Value& most, const Value& above) {
        Value result = most;
        for (std::size_t i = 0; i < most.size(); ++i) result.set(i, most[i] + std::log(above[i]));
        return result;
      };
      expect_close(largest.value(), scan[3].numbers(), close<T>(), "largest");
      expect_close(joined(largest.value(), sum.value()), joined(scan[3], scan[4]).numbers(), close<T>(),
                   "largest + log(sum)");
      expect_close(wanted.value(), scan[5].numbers(), close<T>(), "wanted");

      Value lse = joined(scan[3], scan[4]);
      for (std::size_t i = 0; i < lse.size(); ++i) lse.set(i, lse[i] + 0.7);
      const std::vector<Value> want =
          cpu_sums("lm_head_grad",
                   {part.x, part.weight, part.targets, lse, number(0.25), part.no_dweight(), part.dx()}, {5},
                   {}, {{1, 0, begin}});
      OnDevice lses(lse);
      {
        const DeviceWorkspace workspace(cuda::lm_head_workspace<T>(on.shape));
        LogitRows<T, S>(gemm(), on.shape)
            .lm_head_grad(on.input(), begin, lses.as<C>(), on.gradients(), workspace.data(), nullptr);
      }
      expect_close(on.dweight.value(), want[5].numbers(), close<T>(), "dweight");
      expect_close(on.dx.value(), want[6].numbers(), close<T>(), "dx");
    }
  });
}

// A real vocabulary, whose rows are aligned to nothing; twice, for the same bits.
TEST_F(HeadRows, AnOddVocabularyTunedTwiceTheSame) {
  const Case<bf16> c(700, 64, 50257);
  const std::vector<Value> want =
      cpu("lm_head", {c.x, c.weight, c.targets, number(0.25), number(0), c.no_dweight(), c.dx()});
  OnGpu<bf16> on(c, true, 0);
  on.shape.most_bytes = 300 * 50304 * 2;  // chunks of 256 rows, the last of 188
  const DeviceWorkspace workspace(cuda::lm_head_workspace<bf16>(on.shape));
  LogitRows<bf16> head(gemm(), on.shape);
  const std::vector<cuda::HeadProduct> products = head.products(on.input(), on.gradients(), workspace.data());
  ASSERT_EQ(products.size(), 6U) << "three of whole chunks, three of the last";
  for (const cuda::HeadProduct& product : products) gemm().tune(*product.plan, product.operands, nullptr, 8);
  std::vector<Value> once;
  for (int run = 0; run < 2; ++run) {
    OnDevice loss(number(0));
    head.lm_head(on.input(), on.gradients(), loss.as<double>(), workspace.data(), nullptr);
    const std::vector<Value> results = {loss.value(), on.dweight.value(), on.dx.value()};
    expect_close(results[0], want[4].numbers(), close_loss<bf16>(), "loss");
    expect_close(results[1], want[5].numbers(), close<bf16>(), "dweight");
    expect_close(results[2], want[6].numbers(), close<bf16>(), "dx");
    for (std::size_t i = 0; i < once.size(); ++i)
      EXPECT_EQ(results[i].bytes(), once[i].bytes()) << "result " << i;
    once = results;
  }
}

TEST_F(HeadRows, TargetsBeyondTheVocabularyMakeTheLossNaN) {
  Case<float> c(4, 8, 10);
  c.targets = integers(DType::i32, {1, 4}, {1, 10, -1, 2});
  OnGpu<float> on(c, true, 0);
  OnDevice loss(number(0));
  const DeviceWorkspace workspace(cuda::lm_head_workspace<float>(on.shape));
  LogitRows<float>(gemm(), on.shape)
      .lm_head(on.input(), on.gradients(), loss.as<double>(), workspace.data(), nullptr);
  EXPECT_TRUE(std::isnan(loss.value()[0]));
}

// What needs no GPU.
TEST(HeadWorkspace, HoldsAChunkOfLogitsItsLossesAndThatOfTheProducts) {
  constexpr std::int64_t products = cuda::gemm_workspace;
  // Four chunks of at most 2 GiB / 100,608 bytes = 21,345 rows, in multiples of 128.
  EXPECT_EQ(cuda::lm_head_workspace<bf16>({.rows = 65536, .width = 768, .vocab = 50257}),
            16384LL * 50304 * 2 + 16384 * 8 + products);
  EXPECT_EQ(cuda::lm_head_workspace<bf16>({.rows = 4096, .width = 4096, .vocab = 128256}),
            4096LL * 128256 * 2 + 4096 * 8 + products)
      << "all at once";
  EXPECT_EQ(cuda::lm_head_workspace<float>({.rows = 10, .width = 8, .vocab = 64}),
            10 * 64 * 4 + 256 + products);
  EXPECT_EQ(cuda::lm_head_workspace<double>({.rows = 1000, .width = 8, .vocab = 65, .most_bytes = 1}),
            128 * 128 * 8 + 128 * 8 + products);
  EXPECT_EQ(cuda::lm_head_workspace<bf16>({.rows = 8192, .width = 3584, .vocab = 152064}),
            4096LL * 152064 * 2 + 4096 * 8 + products)
      << "two chunks as large";
  EXPECT_EQ(cuda::lm_head_workspace<bf16>({.rows = 65536, .width = 768, .vocab = 50257}),
            cuda::lm_head_workspace<bf16>({.rows = 65536, .width = 768, .vocab = 50257, .gradients = false}));
}

}  // namespace
}  // namespace prun::test::lm_head_rows_test
