#include "attention/cuda_at.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::attention_at_test {
namespace {

using AttentionAt = CudaTest;

struct Shape {
  std::int64_t batch, seq, kept, heads, queries, width, window = 0;
  double softcap = 0;
};

TEST_F(AttentionAt, KeepsKeysAndValuesAndSeesThemAsTheCpu) {
  for_types([]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const Shape& s : {Shape{1, 1, 3, 1, 1, 8},
                           {2, 8, 77, 3, 1, 64},
                           {1, 5, 150, 2, 4, 128},
                           {2, 3, 40, 1, 3, 33},
                           {1, 2, 9, 2, 1, 256},
                           {2, 5, 150, 2, 2, 32, 1},
                           {1, 8, 300, 1, 2, 64, 70},
                           {1, 3, 40, 2, 1, 24, 60},
                           {2, 3, 90, 1, 2, 64, 7, 0.5}})
      for (const std::int64_t position : {std::int64_t{0}, s.kept / 2, s.kept - s.seq}) {
        SCOPED_TRACE("width " + std::to_string(s.width) + " position " + std::to_string(position));
        const std::vector<std::int64_t> queries = {s.batch, s.seq, s.heads, s.queries, s.width},
                                        row = {s.batch, s.seq, s.heads, s.width},
                                        all = {s.batch, s.kept, s.heads, s.width};
        const Value q = random_value(type, queries, 1), k = random_value(type, row, 2),
                    v = random_value(type, row, 3);
        // What lies behind the positions is not read.
        Value kept_k = random_value(type, all, 4), kept_v = random_value(type, all, 5);
        for (std::size_t i = 0; i < kept_k.size(); ++i)
          if (static_cast<std::int64_t>(i) / (s.heads * s.width) % s.kept >= position)
            kept_k.set(i, std::nan("")), kept_v.set(i, std::nan(""));
        Value at(DType::f64, {});
        at.set(0, static_cast<double>(position));
        const Value lse(sum_type<T>(), {s.batch, s.heads, s.queries, s.seq});
        const std::vector<Value> want =
            cpu("attention_at", {q, k, v, at, kept_k, kept_v, Value(type, queries), lse},
                {{.i = 1}, {.i = s.window}, {.f = s.softcap}});
        OnDevice dq(q, offset), dk(k, offset), dv(v, offset), where(at), keys(kept_k, offset),
            values(kept_v, offset), y(type, queries, offset), sums(sum_type<T>(), lse.dims());
        cuda::attention_at<T>({s.batch, s.seq, s.kept, s.heads, s.queries, s.width, dq.as<T>(), dk.as<T>(),
                               dv.as<T>(), where.as<double>(), keys.as<T>(), values.as<T>(), y.as<T>(),
                               sums.as<cuda::Compute<T>>(), s.window, s.softcap},
                              nullptr);
        EXPECT_EQ(keys.value().bytes(), want[4].bytes());
        EXPECT_EQ(values.value().bytes(), want[5].bytes());
        expect_close(y.value(), want[6].numbers(), tolerance(type), "y");
        expect_close(sums.value(), want[7].numbers(), tolerance(sum_type<T>()), "lse");
      }
  });
}

struct BiasedShape {
  std::int64_t batch, seq, kept, heads, queries, width, buckets, distance;
  double scale = 1;
};

// Buckets hold one distance, many, or none of those that are kept.
TEST_F(AttentionAt, AddsABiasByDistanceAsTheCpu) {
  for_types([]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const BiasedShape& s : {BiasedShape{1, 1, 3, 1, 1, 8, 4, 3},
                                 {2, 8, 77, 3, 1, 64, 32, 128},
                                 {1, 5, 150, 2, 2, 33, 8, 20, 0.25},
                                 {2, 3, 40, 1, 1, 128, 16, 1000, 0.1},
                                 {1, 8, 300, 2, 1, 64, 32, 128, 0.125}})
      for (const std::int64_t position : {std::int64_t{0}, s.kept / 2, s.kept - s.seq}) {
        SCOPED_TRACE("width " + std::to_string(s.width) + " position " + std::to_string(position));
        const std::vector<std::int64_t> queries = {s.batch, s.seq, s.heads, s.queries, s.width},
                                        row = {s.batch, s.seq, s.heads, s.width},
                                        all = {s.batch, s.kept, s.heads, s.width};
        const Value q = random_value(type, queries, 1), k = random_value(type, row, 2),
                    v = random_value(type, row, 3), kept_k = random_value(type, all, 4),
                    kept_v = random_value(type, all, 5), table = random_value(type, {s.heads, s.buckets}, 6);
        Value at(DType::f64, {});
        at.set(0, static_cast<double>(position));
        const Value lse(sum_type<T>(), {s.batch, s.heads, s.queries, s.seq});
        const std::vector<Value> want =
            cpu("attention_biased_at", {q, k, v, table, at, kept_k, kept_v, Value(type, queries), lse},
                {{.i = 1}, {.i = s.distance}, {.f = s.scale}});
        OnDevice dq(q, offset), dk(k, offset), dv(v, offset), where(at), keys(kept_k, offset),
            values(kept_v, offset), biases(table, offset), y(type, queries, offset),
            sums(sum_type<T>(), lse.dims());
        cuda::attention_biased_at<T>(
            {s.batch, s.seq, s.kept, s.heads, s.queries, s.width, dq.as<T>(), dk.as<T>(), dv.as<T>(),
             where.as<double>(), keys.as<T>(), values.as<T>(), y.as<T>(), sums.as<cuda::Compute<T>>()},
            {biases.as<T>(), cuda::bounds_of({s.buckets, s.distance, true}, s.kept), s.scale}, nullptr);
        EXPECT_EQ(keys.value().bytes(), want[5].bytes());
        EXPECT_EQ(values.value().bytes(), want[6].bytes());
        expect_close(y.value(), want[7].numbers(), tolerance(type), "y");
        expect_close(sums.value(), want[8].numbers(), tolerance(sum_type<T>()), "lse");
      }
  });
}

// Text position by position is that of a whole sequence, bit by bit.
TEST(AttentionBiasedAt, OnTheCpuAsAWholeSequence) {
  constexpr std::int64_t batch = 2, seq = 21, heads = 2, width = 9, some = 4;
  const std::vector<std::int64_t> all = {batch, seq, heads, width}, queries = {batch, seq, heads, 1, width};
  const Value q = random_value(DType::f32, queries, 1), k = random_value(DType::f32, all, 2),
              v = random_value(DType::f32, all, 3), table = random_value(DType::f32, {heads, 8}, 4);
  const std::vector<Attr> attrs = {{.i = 1}, {.i = 9}, {.f = 0.5}};
  const Value whole =
      cpu("attention_biased",
          {q, k, v, table, Value(DType::f32, queries), Value(DType::f32, {batch, heads, 1, seq})}, attrs)[4];
  // Returns positions [first, first + some) of it.
  const auto cut = [&](const Value& from, std::int64_t first) {
    std::vector<std::int64_t> dims = from.dims();
    dims[1] = some;
    Value part(DType::f32, dims);
    const std::int64_t each = heads * width;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < some * each; ++i)
        part.set(static_cast<std::size_t>(b * some * each + i),
                 from.numbers()[static_cast<std::size_t>((b * seq + first) * each + i)]);
    return part;
  };
  Value kept_k(DType::f32, all), kept_v(DType::f32, all), at(DType::f64, {});
  for (std::int64_t first = 0; first + some <= seq; first += 3) {  // some of them are computed again
    at.set(0, static_cast<double>(first));
    const std::vector<Value> done =
        cpu("attention_biased_at",
            {cut(q, first), cut(k, first), cut(v, first), table, at, kept_k, kept_v,
             Value(DType::f32, {batch, some, heads, 1, width}), Value(DType::f32, {batch, heads, 1, some})},
            attrs);
    kept_k = done[5], kept_v = done[6];
    EXPECT_EQ(done[7].bytes(), cut(whole, first).bytes()) << first;
  }
}

}  // namespace
}  // namespace prun::test::attention_at_test
