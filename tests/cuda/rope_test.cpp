#include "rope/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::rope_test {
namespace {

using Rope = CudaTest;

std::vector<Attr> attrs_of(const RopeTurn& turn, std::int64_t turned = 0, bool interleaved = false) {
  return {
      {.f = turn.base},           {.f = turn.factor},       {.f = turn.low},
      {.f = turn.high},           {.f = turn.original},     {.i = static_cast<std::int64_t>(turn.scaling)},
      {.f = turn.query_scale},    {.f = turn.key_scale},    {.i = turned},
      {.i = interleaved ? 1 : 0}, {.f = turn.query_growth}, {.f = turn.turned_scale}};
}

TEST_F(Rope, TurnsQueriesAndKeysThereAndBackAsTheCpu) {
  const std::vector<std::vector<std::int64_t>> shapes = {{1, 1, 1, 3, 2},    {2, 3, 2, 3, 6},
                                                         {3, 17, 4, 3, 64},  {2, 5, 2, 6, 128},
                                                         {1, 40, 3, 4, 256}, {5, 2, 1, 3, 80}};
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const auto& d : shapes)
      for (std::int64_t first : {0, 100'000}) {
        SCOPED_TRACE("head_dim " + std::to_string(d[4]) + " from " + std::to_string(first));
        const std::vector<std::int64_t> queries = {d[0], d[1], d[2], d[3] - 2, d[4]},
                                        keys = {d[0], d[1], d[2], d[4]};
        const std::vector<Start> starts = {{0, 1, first}, {1, 1, first}, {2, 1, first}, {3, 1, first}};
        const RopeTurn slowed{.factor = 8,
                              .high = 32,
                              .original = 512,
                              .scaling = RopeScaling::by_pairs,
                              .query_scale = 1.5,
                              .key_scale = 0.75},
            turn = first > 0 ? slowed : RopeTurn{};
        const std::vector<Attr> base = attrs_of(turn);
        const Value x = random_value(type, d, 1);
        const std::vector<Value> want =
            cpu("rope", {x, Value(type, queries), Value(type, keys), Value(type, keys)}, base, starts);
        const Value dx = cpu("rope_grad", {want[1], want[2], want[3], Value(type, d)}, base, starts)[3];
        const cuda::RopeShape shape = {d[0], d[1], d[2], d[3], d[4], first, turn};
        OnDevice in(x, offset), q(type, queries, offset), k(type, keys, offset), v(type, keys, offset);
        cuda::rope(in.as<T>(), q.as<T>(), k.as<T>(), v.as<T>(), shape, nullptr);
        expect_close(q.value(), want[1].numbers(), tolerance(type), "q");
        expect_close(k.value(), want[2].numbers(), tolerance(type), "k");
        EXPECT_EQ(v.value().bytes(), want[3].bytes()) << "v";
        OnDevice dq(want[1], offset), dk(want[2], offset), dv(want[3], offset), out(type, d, offset);
        cuda::rope_grad(dq.as<T>(), dk.as<T>(), dv.as<T>(), out.as<T>(), shape, nullptr);
        expect_close(out.value(), dx.numbers(), tolerance(type), "dx");
      }
  });
}

// Heads that turn in part, wide enough for accesses of 16 bytes or not, and pairs of neighbours.
TEST_F(Rope, TurnsSomeChannelsInPairsOfEitherKindAsTheCpu) {
  const std::vector<std::int64_t> turned_of_80 = {2, 6, 16, 48, 80};
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    const std::vector<std::int64_t> d = {2, 9, 2, 4, 80}, queries = {2, 9, 2, 2, 80}, keys = {2, 9, 2, 80};
    for (const std::int64_t turned : turned_of_80)
      for (const bool interleaved : {false, true}) {
        SCOPED_TRACE(std::to_string(turned) + (interleaved ? " neighbours" : ""));
        RopeTurn turn{
            .original = 3, .query_scale = 1.5, .key_scale = 0.75, .query_growth = 0.3, .turned_scale = 1.4};
        std::vector<Attr> attrs = attrs_of(turn, turned, interleaved);
        if (turned == 16) {  // each pair slower by a number of its own
          attrs[5].i = static_cast<std::int64_t>(turn.scaling = RopeScaling::by_list);
          for (std::int64_t i = 0; i < 64; ++i) attrs.push_back({.f = 1.1 + 0.3 * static_cast<double>(i)});
          turn.slower = attrs.data() + 12;
        }
        const Value x = random_value(type, d, 1);
        const std::vector<Value> want =
            cpu("rope", {x, Value(type, queries), Value(type, keys), Value(type, keys)}, attrs);
        const Value dx = cpu("rope_grad", {want[1], want[2], want[3], Value(type, d)}, attrs)[3];
        cuda::RopeShape shape = {d[0], d[1], d[2], d[3], d[4], 0, turn};
        shape.pairs = {turned / 2, interleaved};
        OnDevice in(x, offset), q(type, queries, offset), k(type, keys, offset), v(type, keys, offset);
        cuda::rope(in.as<T>(), q.as<T>(), k.as<T>(), v.as<T>(), shape, nullptr);
        expect_close(q.value(), want[1].numbers(), tolerance(type), "q");
        expect_close(k.value(), want[2].numbers(), tolerance(type), "k");
        EXPECT_EQ(v.value().bytes(), want[3].bytes()) << "v";
        OnDevice dq(want[1], offset), dk(want[2], offset), dv(want[3], offset), out(type, d, offset);
        cuda::rope_grad(dq.as<T>(), dk.as<T>(), dv.as<T>(), out.as<T>(), shape, nullptr);
        expect_close(out.value(), dx.numbers(), tolerance(type), "dx");
      }
  });
}

TEST_F(Rope, TurnsFromAPositionOnAsTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    const std::vector<std::int64_t> d = {3, 6, 4, 5, 64}, queries = {3, 6, 4, 3, 64}, keys = {3, 6, 4, 64};
    for (const double position : {0.0, 1.0, 77777.0}) {
      const Value x = random_value(type, d, 1);
      Value at(DType::f64, {});
      at.set(0, position);
      const RopeTurn turn;
      const std::vector<Value> want =
          cpu("rope_at", {x, at, Value(type, queries), Value(type, keys), Value(type, keys)}, attrs_of(turn));
      OnDevice in(x, offset), where(at), q(type, queries, offset), k(type, keys, offset),
          v(type, keys, offset);
      const cuda::RopeShape shape{d[0], d[1], d[2], d[3], d[4], 0, turn, where.as<double>()};
      cuda::rope(in.as<T>(), q.as<T>(), k.as<T>(), v.as<T>(), shape, nullptr);
      expect_close(q.value(), want[2].numbers(), tolerance(type), "q");
      expect_close(k.value(), want[3].numbers(), tolerance(type), "k");
      EXPECT_EQ(v.value().bytes(), want[4].bytes()) << "v";
    }
  });
}

TEST_F(Rope, RefusesHeadsThatAreTooWide) {
  EXPECT_THROW(cuda::rope<float>(nullptr, nullptr, nullptr, nullptr, {1, 1, 1, 3, 514}, nullptr), Error);
}

}  // namespace
}  // namespace prun::test::rope_test
