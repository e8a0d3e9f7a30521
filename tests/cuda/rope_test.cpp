#include "cuda/rope.hpp"

#include "tests/cuda/device_value.hpp"

namespace {

using namespace prun;
using namespace prun::test;

using Rope = CudaTest;

TEST_F(Rope, TurnsQueriesAndKeysAsTheCpu) {
  const std::vector<std::vector<std::int64_t>> shapes = {{1, 1, 1, 2, 2},    {2, 3, 2, 3, 6},
                                                         {3, 17, 4, 3, 64},  {2, 5, 2, 6, 128},
                                                         {1, 40, 3, 4, 256}, {5, 2, 1, 3, 80}};
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const auto& dims : shapes)
      for (bool inverse : {false, true})
        for (std::int64_t first : {0, 100'000}) {
          SCOPED_TRACE("head_dim " + std::to_string(dims[4]) + " from " + std::to_string(first));
          const Value x = random_value(type, dims, 1);
          const Value want =
              cpu("rope", {x, Value(type, dims)}, {{.f = 10000.0}, {.i = inverse}}, {{0, 1, first}})[1];
          OnDevice in(x, offset), y(type, dims, offset);
          const cuda::RopeShape shape = {dims[0], dims[1], dims[2], dims[3],
                                         dims[4], first,   10000.0, inverse};
          cuda::rope(in.as<T>(), y.as<T>(), shape, nullptr);
          expect_close(y.value(), want.numbers(), tolerance(type), "y");
          cuda::rope(in.as<T>(), in.as<T>(), shape, nullptr);
          EXPECT_EQ(in.value().bytes(), y.value().bytes()) << "in place";
        }
  });
}

TEST_F(Rope, RefusesHeadsThatAreTooWide) {
  EXPECT_THROW(cuda::rope<float>(nullptr, nullptr, {1, 1, 1, 3, 514}, nullptr), Error);
}

}  // namespace
