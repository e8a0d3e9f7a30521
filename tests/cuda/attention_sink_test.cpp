// Sinks: what attention gives with them, of what it gives without, and their gradient.
#include "attention/cuda_sink.hpp"

#include "tests/cuda/attention_case.hpp"

namespace prun::test::attention_sink_test {
namespace {

using AttentionSink = CudaTest;

const cuda::AttentionShape shapes[] = {
    {1, 1, 1, 1, 8, true}, {2, 21, 2, 3, 5, true}, {1, 40, 1, 4, 33, false}, {2, 30, 3, 2, 64, true, 7}};

TEST_F(AttentionSink, TakesItsShareAsOnTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const cuda::AttentionShape& shape : shapes) {
      SCOPED_TRACE(text_of(shape));
      const std::vector<Attr> attrs = {{.i = shape.causal}, {.i = shape.window}, {.f = 0}};
      const AttentionReference<T> r(shape, 2);
      const Value q = r.queries(r.x), k = r.keys(r.x), v = r.values(r.x),
                  sinks = random_value(type, {shape.heads, shape.queries}, 3, 2);
      const std::vector<Value> alone = cpu("attention", {q, k, v, r.y, r.lse, {}}, attrs),
                               want = cpu("attention", {q, k, v, r.y, r.lse, {}, sinks}, attrs);
      OnDevice y(alone[3], offset), lse(alone[4]);
      const OnDevice by(sinks);
      cuda::take_shares<T>(shape, {y.as<T>(), cuda::head_strides(shape, shape.queries)},
                           lse.as<cuda::Compute<T>>(), by.as<T>(), nullptr);
      expect_close(y.value(), want[3].numbers(), 2 * tolerance(type), "y");
      expect_close(lse.value(), want[4].numbers(), tolerance(sum_type<T>()), "lse");
      const Value dsinks = cpu("attention_sink_grad", {r.dy, want[3], want[4], sinks, sinks}, {})[4];
      const OnDevice dy(r.dy, offset), read(want[3], offset), sums(want[4]);
      OnDevice got(type, sinks.dims());
      cuda::attention_sink_grad<T>(shape, dy.as<T>(), read.as<T>(), sums.as<cuda::Compute<T>>(), by.as<T>(),
                                   got.as<T>(), nullptr);
      expect_close(got.value(), dsinks.numbers(), 8 * tolerance(type), "dsinks");
    }
  });
}

}  // namespace
}  // namespace prun::test::attention_sink_test
