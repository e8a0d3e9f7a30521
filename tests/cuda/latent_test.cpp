#include "latent/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::latent_test {
namespace {

using Latent = CudaTest;

struct Case {
  std::int64_t batch, seq, heads, head_dim, turned, values;
  bool interleaved;
  std::int64_t first;

  std::vector<std::int64_t> wide() const { return {batch, seq, heads, head_dim}; }
  std::vector<std::int64_t> queries() const { return {batch, seq, heads, 1, head_dim}; }
  std::vector<std::int64_t> kv() const { return {batch, seq, heads, head_dim - turned + values}; }
  std::vector<std::int64_t> shared() const { return {batch, seq, turned}; }
};

const RopeTurn slowed{.factor = 8,
                      .high = 32,
                      .original = 512,
                      .scaling = RopeScaling::by_pairs,
                      .query_scale = 1.5,
                      .key_scale = 0.75};

std::vector<Attr> attrs_of(const Case& c) {
  return {
      {.f = slowed.base},        {.f = slowed.factor},    {.f = slowed.low},
      {.f = slowed.high},        {.f = slowed.original},  {.i = static_cast<std::int64_t>(slowed.scaling)},
      {.f = slowed.query_scale}, {.f = slowed.key_scale}, {.i = c.turned},
      {.i = c.values},           {.i = c.interleaved}};
}

cuda::LatentShape shape_of(const Case& c) {
  return {c.batch, c.seq, c.heads, c.head_dim, c.turned, c.values, c.interleaved, c.first, slowed};
}

const std::vector<Case> cases = {{1, 1, 1, 3, 2, 1, true, 0},
                                 {2, 3, 2, 6, 4, 6, true, 100'000},
                                 {3, 7, 4, 48, 16, 32, false, 5},
                                 {2, 5, 2, 192, 64, 128, true, 0},
                                 {1, 4, 3, 80, 64, 80, false, 2'000}};

TEST_F(Latent, HeadsThereAndBackAsTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const Case& c : cases) {
      SCOPED_TRACE("head_dim " + std::to_string(c.head_dim) + " from " + std::to_string(c.first));
      const std::vector<Start> starts = {{0, 1, c.first}};
      const Value x = random_value(type, c.wide(), 1), kv = random_value(type, c.kv(), 2),
                  shared = random_value(type, c.shared(), 3);
      const std::vector<Value> want =
          cpu("latent_heads",
              {x, kv, shared, Value(type, c.queries()), Value(type, c.wide()), Value(type, c.wide())},
              attrs_of(c), starts);
      OnDevice in(x, offset), latent(kv, offset), turned(shared, offset), q(type, c.queries(), offset),
          k(type, c.wide(), offset), v(type, c.wide(), offset);
      cuda::latent_heads<T>({in.as<T>(), latent.as<T>(), turned.as<T>(), q.as<T>(), k.as<T>(), v.as<T>()},
                            shape_of(c), nullptr);
      expect_close(q.value(), want[3].numbers(), tolerance(type), "q");
      expect_close(k.value(), want[4].numbers(), tolerance(type), "k");
      EXPECT_EQ(v.value().bytes(), want[5].bytes()) << "v";

      const std::vector<Value> back = cpu(
          "latent_heads_grad",
          {want[3], want[4], want[5], Value(type, c.wide()), Value(type, c.kv()), Value(type, c.shared())},
          attrs_of(c), starts);
      OnDevice dq(want[3], offset), dk(want[4], offset), dv(want[5], offset), dx(type, c.wide(), offset),
          dkv(type, c.kv(), offset), dshared(type, c.shared(), offset);
      cuda::latent_heads_grad<T>(
          {dx.as<T>(), dkv.as<T>(), dshared.as<T>(), dq.as<T>(), dk.as<T>(), dv.as<T>()}, shape_of(c),
          nullptr);
      expect_close(dx.value(), back[3].numbers(), tolerance(type), "dx");
      EXPECT_EQ(dkv.value().bytes(), back[4].bytes()) << "dkv";
      expect_close(dshared.value(), back[5].numbers(), 4 * tolerance(type), "dshared");
    }
  });
}

TEST_F(Latent, HeadsFromAPositionOnAsTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    const Case c = {2, 3, 2, 24, 8, 16, true, 0};
    Value at(DType::f64, {});
    at.set(0, 777);
    const Value x = random_value(type, c.wide(), 1), kv = random_value(type, c.kv(), 2),
                shared = random_value(type, c.shared(), 3);
    const std::vector<Value> want =
        cpu("latent_heads_at",
            {x, kv, shared, at, Value(type, c.queries()), Value(type, c.wide()), Value(type, c.wide())},
            attrs_of(c));
    OnDevice in(x, offset), latent(kv, offset), turned(shared, offset), where(at),
        q(type, c.queries(), offset), k(type, c.wide(), offset), v(type, c.wide(), offset);
    cuda::LatentShape shape = shape_of(c);
    shape.position = where.as<double>();
    cuda::latent_heads<T>({in.as<T>(), latent.as<T>(), turned.as<T>(), q.as<T>(), k.as<T>(), v.as<T>()},
                          shape, nullptr);
    expect_close(q.value(), want[4].numbers(), tolerance(type), "q");
    expect_close(k.value(), want[5].numbers(), tolerance(type), "k");
    EXPECT_EQ(v.value().bytes(), want[6].bytes()) << "v";
  });
}

TEST_F(Latent, PartsAndWidthsAsTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const auto& [rows, first, last] :
         {std::array<std::int64_t, 3>{1, 1, 1}, {37, 5, 64}, {300, 96, 3}}) {
      const Value x = random_value(type, {1, rows, first + last}, 1);
      const std::vector<Value> want = cpu(
          "split_latent", {x, Value(type, {1, rows, first}), Value(type, {1, rows, last})}, {{.i = last}});
      OnDevice whole(x, offset), one(type, {1, rows, first}, offset), other(type, {1, rows, last}, offset),
          again(type, {1, rows, first + last}, offset);
      cuda::split_latent(whole.as<T>(), one.as<T>(), other.as<T>(), rows, first, last, nullptr);
      EXPECT_EQ(one.value().bytes(), want[1].bytes());
      EXPECT_EQ(other.value().bytes(), want[2].bytes());
      cuda::join_latent(one.as<T>(), other.as<T>(), again.as<T>(), rows, first, last, nullptr);
      EXPECT_EQ(again.value().bytes(), x.bytes());

      const std::vector<std::int64_t> wide = {1, rows, 1, 1, first + last}, narrow = {1, rows, 1, 1, first};
      const std::vector<Attr> widths = {{.i = first}, {.i = first + last}};
      const Value some = cpu("narrow_heads", {random_value(type, wide, 2), Value(type, narrow)}, widths)[1];
      const Value zeros = cpu("widen_heads", {some, Value(type, wide)}, widths)[1];
      OnDevice from(random_value(type, wide, 2), offset), to(type, narrow, offset), back(type, wide, offset);
      cuda::set_width(from.as<T>(), to.as<T>(), rows, first + last, first, nullptr);
      EXPECT_EQ(to.value().bytes(), some.bytes());
      cuda::set_width(to.as<T>(), back.as<T>(), rows, first, first + last, nullptr);
      EXPECT_EQ(back.value().bytes(), zeros.bytes());
    }
  });
}

}  // namespace
}  // namespace prun::test::latent_test
