// What reorders sequences, and attention of a part of the queries: as on the CPU.
#include "cuda/sequence.hpp"

#include "cuda/attention.hpp"
#include "cuda/collective.hpp"
#include "prun/sequence_order.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::sequence_test {
namespace {

using Sequence = CudaTest;
using AttentionAcross = CudaTest;

TEST_F(Sequence, SaysWhichPositionIsWhere) {
  OnDevice got(Value(DType::i32, {6}));
  cuda::positions(got.as<std::int32_t>(), 6, 6, {3, 4}, nullptr);
  EXPECT_EQ(got.value().numbers(), (std::vector<double>{3, 4, 5, 6, 7, 8}));
}

TEST_F(Sequence, GoesThereAndBack) {
  for (const std::int64_t width : {1, 3, 8}) {
    Value x(DType::f32, {2, 12, width});
    for (std::size_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i));
    const Value want = cpu("as_context", {x, Value(DType::f32, x.dims())}, {{.i = 3}, {.i = 4}})[1];
    const OnDevice from(x);
    OnDevice there(Value(DType::f32, x.dims())), back(Value(DType::f32, x.dims()));
    cuda::reorder_chunks(from.as<float>(), there.as<float>(), 2, 4, 3 * width * 4, false, nullptr);
    EXPECT_EQ(there.value().bytes(), want.bytes());
    cuda::reorder_chunks(there.as<float>(), back.as<float>(), 2, 4, 3 * width * 4, true, nullptr);
    EXPECT_EQ(back.value().bytes(), x.bytes());
  }
}

struct Share {
  cuda::AttentionShape shape;
  bool documents = false;
};

// Parts in order, of front and back, with chunks that are no whole tiles, and the last of all.
std::vector<Share> shares() {
  const auto part = [](std::int64_t seq, std::int64_t keys, std::int64_t first, std::int64_t chunk,
                       std::int64_t chunks, bool documents = false) {
    return Share{{.batch = 2,
                  .seq = seq,
                  .heads = 2,
                  .queries = 2,
                  .head_dim = 16,
                  .causal = true,
                  .keys = keys,
                  .first = first,
                  .chunk = chunk,
                  .chunks = chunks},
                 documents};
  };
  // Of an encoder and a decoder: queries see all keys, of which there are more or fewer.
  const auto full = [&](std::int64_t seq, std::int64_t keys) {
    Share share = part(seq, keys, 0, 0, 0);
    share.shape.causal = false;
    return share;
  };
  return {part(20, 40, 20, 0, 0),
          part(36, 72, 0, 18, 4),
          part(36, 72, 36, 18, 4, true),
          part(24, 96, 24, 12, 8, true),
          part(6, 12, 6, 3, 4),
          full(30, 70),
          full(70, 9)};
}

Value starts_of(const Share& part) {
  if (!part.documents) return {};
  const cuda::AttentionShape& s = part.shape;
  std::vector<std::int64_t> starts;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t i = 0; i < s.seq; ++i)
      starts.push_back(SequenceOrder{s.chunk, s.chunks}.position(s.first + i) / (11 + b) * (11 + b));
  return integers(DType::i32, {s.batch, s.seq}, starts);
}

template <class T>
void expect_as_on_the_cpu(const Share& part, std::int64_t offset) {
  const cuda::AttentionShape& s = part.shape;
  const DType type = dtype_of<T>();
  const Value q = random_value(type, {s.batch, s.seq, s.heads, s.queries, s.head_dim}, 1),
              k = random_value(type, {s.batch, s.keys, s.heads, s.head_dim}, 2),
              v = random_value(type, k.dims(), 3), dy = random_value(type, q.dims(), 4),
              lse(sum_type<T>(), {s.batch, s.heads, s.queries, s.seq}), documents = starts_of(part);
  const std::vector<Attr> attrs = {{.i = s.causal}, {.i = 0}, {.i = s.chunk}, {.i = s.chunks}};
  const auto want = cpu("attention_across", {q, k, v, zeros(q), lse, documents}, attrs, {{0, 1, s.first}});
  const auto back =
      cpu("attention_across_grad", {dy, q, k, v, want[3], want[4], zeros(q), zeros(k), zeros(v), documents},
          attrs, {{1, 1, s.first}});
  const OnDevice on_q(q, offset), on_k(k, offset), on_v(v, offset), on_dy(dy, offset), on_y(want[3], offset),
      on_lse(want[4]), starts(part.documents ? documents : integers(DType::i32, {1}, {0}));
  OnDevice y(poison(q), offset), got_lse(poison(lse)), dq(poison(q), offset), dk(poison(k), offset),
      dv(poison(v), offset);
  const cuda::HeadStrides queries = cuda::head_strides(s, s.queries),
                          keys = cuda::head_strides(cuda::shape_of_keys(s), 1);
  const std::int32_t* const first_keys = part.documents ? starts.as<std::int32_t>() : nullptr;
  cuda::attention(cuda::AttentionForward<T>{s,
                                            {on_q.as<T>(), queries},
                                            {on_k.as<T>(), keys},
                                            {on_v.as<T>(), keys},
                                            {y.as<T>(), queries},
                                            got_lse.as<cuda::Compute<T>>(),
                                            nullptr,
                                            first_keys},
                  nullptr);
  const double bound = std::is_same_v<T, double> ? 1e-12 : std::is_same_v<T, float> ? 2e-5 : 8e-3;
  expect_close(y.value(), want[3].numbers(), bound, "y");
  expect_close(got_lse.value(), want[4].numbers(), std::is_same_v<T, double> ? 1e-12 : 2e-5, "lse");
  {
    const DeviceWorkspace workspace(cuda::attention_backward_workspace<T>(s));
    cuda::attention_backward(cuda::AttentionBackward<T>{s,
                                                        {on_dy.as<T>(), queries},
                                                        {on_q.as<T>(), queries},
                                                        {on_k.as<T>(), keys},
                                                        {on_v.as<T>(), keys},
                                                        {on_y.as<T>(), queries},
                                                        on_lse.as<cuda::Compute<T>>(),
                                                        {dq.as<T>(), queries},
                                                        {dk.as<T>(), keys},
                                                        {dv.as<T>(), keys},
                                                        workspace.data(),
                                                        first_keys},
                             nullptr);
  }
  expect_close(dq.value(), back[6].numbers(), bound, "dq");
  expect_close(dk.value(), back[7].numbers(), bound, "dk");
  expect_close(dv.value(), back[8].numbers(), bound, "dv");
}

TEST_F(AttentionAcross, AsOnTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    for (const Share& part : shares()) expect_as_on_the_cpu<T>(part, offset);
  });
}

}  // namespace
}  // namespace prun::test::sequence_test
