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

}  // namespace
}  // namespace prun::test::attention_at_test
