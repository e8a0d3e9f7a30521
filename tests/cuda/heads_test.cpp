#include "heads/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::heads_test {
namespace {

using Heads = CudaTest;

TEST_F(Heads, SplitAndJoinAsTheCpu) {
  const std::vector<std::vector<std::int64_t>> shapes = {{1, 1, 1, 3, 1},     {2, 3, 2, 3, 6},
                                                         {3, 17, 4, 3, 64},   {2, 5, 2, 6, 128},
                                                         {1, 40, 3, 10, 256}, {5, 2, 1, 4, 80}};
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const auto& d : shapes) {
      SCOPED_TRACE("head_dim " + std::to_string(d[4]));
      const std::vector<std::int64_t> queries = {d[0], d[1], d[2], d[3] - 2, d[4]},
                                      keys = {d[0], d[1], d[2], d[4]};
      const Value x = random_value(type, d, 1);
      const std::vector<Value> want =
          cpu("split_heads", {x, Value(type, queries), Value(type, keys), Value(type, keys)});
      const cuda::HeadsShape shape = {d[0] * d[1] * d[2], d[3], d[4]};
      OnDevice in(x, offset), q(type, queries, offset), k(type, keys, offset), v(type, keys, offset);
      cuda::split_heads(in.as<T>(), q.as<T>(), k.as<T>(), v.as<T>(), shape, nullptr);
      EXPECT_EQ(q.value().bytes(), want[1].bytes()) << "q";
      EXPECT_EQ(k.value().bytes(), want[2].bytes()) << "k";
      EXPECT_EQ(v.value().bytes(), want[3].bytes()) << "v";
      OnDevice out(type, d, offset);
      cuda::join_heads(q.as<T>(), k.as<T>(), v.as<T>(), out.as<T>(), shape, nullptr);
      EXPECT_EQ(out.value().bytes(), x.bytes()) << "x";
    }
  });
}

}  // namespace
}  // namespace prun::test::heads_test
