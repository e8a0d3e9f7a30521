// What reorders sequences, and attention of a part of the queries: as on the CPU.
#include "sequence/cuda.hpp"

#include "attention/cuda.hpp"
#include "attention/cuda_chunks.hpp"
#include "attention/cuda_tensor.hpp"
#include "collective/cuda.hpp"
#include "halo/cuda.hpp"
#include "prun/sequence_order.hpp"
#include "tests/cuda/attention_case.hpp"

namespace prun::test::sequence_test {
namespace {

using Sequence = CudaTest;
using AttentionAcross = CudaTest;
using AttentionAhead = CudaTest;

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

// Chunks of two samples, in order and of front and back, of three ranks: beside others and at the ends.
TEST_F(Sequence, BringsChunksWhatIsInFrontOfThemAndTakesItBack) {
  constexpr std::int64_t rows = 4, reach = 3, width = 5, bytes = width * 4;
  for (const bool zigzag : {false, true})
    for (const std::int64_t rank : {0, 1, 2})
      for (const std::int64_t distance : {1, 2}) {
        const std::int64_t count = zigzag ? 2 : 1, parts = 3 * count, first = rank * count;
        const cuda::HaloCopies chunks{
            {rows, reach, distance, parts, zigzag ? parts : 0, count, first}, 2, bytes};
        const std::vector<Attr> of_tails = {{.i = rows}, {.i = reach}}, of_halo = {{.i = rows},
                                                                                   {.i = reach},
                                                                                   {.i = distance},
                                                                                   {.i = parts},
                                                                                   {.i = chunks.chunks}};
        const std::vector<Start> at = {{0, 1, first * rows}};
        const auto value = [&](std::int64_t places, unsigned seed) {
          return random_value(DType::f32, {2, places, width}, seed);
        };
        const Value x = value(count * rows, 1), halo = value(count * reach, 2),
                    parted = value(count * reach, 3), y = value(count * (rows + reach), 4);
        const OnDevice on_x(x), on_halo(halo), on_parted(parted), on_y(y);
        OnDevice ends(poison(halo)), joined(poison(y)), own(poison(x)), front(poison(halo)), sum(poison(x));
        cuda::halo_tails(on_x.as<float>(), ends.as<float>(), chunks, nullptr);
        cuda::join_halo(on_x.as<float>(), on_halo.as<float>(), joined.as<float>(), chunks, nullptr);
        cuda::part_halo(on_y.as<float>(), own.as<float>(), front.as<float>(), chunks, nullptr);
        cuda::add_tails<float>(on_x.as<float>(), on_halo.as<float>(), on_parted.as<float>(), sum.as<float>(),
                               chunks, nullptr);
        const auto apart = cpu("part_halo", {y, zeros(x), zeros(halo)}, of_tails);
        EXPECT_EQ(ends.value().bytes(), cpu("halo_tails", {x, zeros(halo)}, of_tails)[1].bytes());
        EXPECT_EQ(joined.value().bytes(), cpu("join_halo", {x, halo, zeros(y)}, of_halo, at)[2].bytes());
        EXPECT_EQ(own.value().bytes(), apart[1].bytes());
        EXPECT_EQ(front.value().bytes(), apart[2].bytes());
        EXPECT_EQ(sum.value().bytes(), cpu("add_tails", {x, halo, parted, zeros(x)}, of_halo, at)[3].bytes());
      }
}

struct Share {
  cuda::AttentionShape shape;
  bool documents = false;
  std::int64_t document = 11;  // positions of one, about
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
  const auto windowed = [](Share share, std::int64_t window) {
    share.shape.window = window;
    return share;
  };
  const auto bounded = [](Share share, double softcap) {
    share.shape.softcap = softcap;
    return share;
  };
  const auto dropping = [](Share share) {
    share.shape.p = 0.3;
    return share;
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
          windowed(part(36, 72, 36, 18, 4, true), 20),
          windowed(part(40, 80, 40, 0, 0), 70),
          bounded(part(36, 72, 36, 18, 4, true), 0.5),
          full(30, 70),
          full(70, 9),
          dropping(part(36, 72, 36, 18, 4, true)),
          dropping(full(30, 70))};
}

Value starts_of(const Share& part) {
  if (!part.documents) return {};
  const cuda::AttentionShape& s = part.shape;
  std::vector<std::int64_t> starts;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t i = 0; i < s.seq; ++i)
      starts.push_back(SequenceOrder{s.chunk, s.chunks}.position(s.first + i) / (part.document + b) *
                       (part.document + b));
  return integers(DType::i32, {s.batch, s.seq}, starts);
}

std::vector<Attr> attrs_of(const cuda::AttentionShape& s) {
  return {{.i = s.causal}, {.i = s.window},  {.i = s.chunk}, {.i = s.chunks},     {.i = s.ahead},
          {.i = 8},        {.f = s.softcap}, {.f = s.p},     {.i = Draws::stream}};
}

template <class T>
void expect_as_on_the_cpu(const Share& part, std::int64_t offset) {
  const cuda::AttentionShape& s = part.shape;
  const DType type = dtype_of<T>();
  const Value q = random_value(type, {s.batch, s.seq, s.heads, s.queries, s.head_dim}, 1),
              k = random_value(type, {s.batch, s.keys, s.heads, s.head_dim}, 2),
              v = random_value(type, k.dims(), 3), dy = random_value(type, q.dims(), 4),
              lse(sum_type<T>(), {s.batch, s.heads, s.queries, s.seq}), documents = starts_of(part);
  const Draws draws(s);
  const std::vector<Attr> attrs = attrs_of(s);
  const auto want =
      cpu("attention_across", {q, k, v, zeros(q), lse, documents, Value(), draws.samples(), draws.seed()},
          attrs, {{0, 1, s.first}, {0, 2, Draws::first_head}}, Draws::layer);
  const auto back = cpu(
      "attention_across_grad",
      {dy, q, k, v, want[3], want[4], zeros(q), zeros(k), zeros(v), documents, draws.samples(), draws.seed()},
      attrs, {{1, 1, s.first}, {1, 2, Draws::first_head}}, Draws::layer);
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
                                            first_keys,
                                            draws.on_device()},
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
                                                        first_keys,
                                                        draws.on_device()},
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

// Keys begin ahead of each chunk: of the first rank, where none are there, of the next, where not all may be,
// in order and of front and back, beside documents.
std::vector<Share> shares_ahead(std::int64_t head_dim, std::int64_t rows) {
  const auto part = [=](std::int64_t place, std::int64_t chunks, std::int64_t window, bool documents) {
    const bool zigzag = chunks > 0;
    const std::int64_t count = zigzag ? 2 : 1, ahead = std::max<std::int64_t>(window - 1, 1);
    return Share{{.batch = 2,
                  .seq = count * rows,
                  .heads = 1,
                  .queries = 2,
                  .head_dim = head_dim,
                  .causal = true,
                  .window = window,
                  .keys = count * (ahead + rows),
                  .first = place * count * rows,
                  .chunk = zigzag ? rows : 0,
                  .chunks = chunks,
                  .ahead = ahead},
                 documents,
                 37};
  };
  return {part(0, 0, 7, false),       part(1, 0, rows, true), part(2, 0, 2, false),
          part(0, 4, rows / 2, true), part(1, 4, 12, true),   part(1, 8, rows, false)};
}

// Runs a chunk by the kernels on tensor cores, in either form, or by the general ones.
enum class By { general, few, many };

template <class T>
void run_chunk(const cuda::AttentionForward<T>& call, By by) {
  if constexpr (is_half<T>)
    if (by != By::general)
      return cuda::tensor_attention(
          call, by == By::few ? cuda::AttentionForm::few : cuda::AttentionForm::many, nullptr);
  cuda::attention(call, nullptr);
}
template <class T>
void run_chunk(const cuda::AttentionBackward<T>& call, By by) {
  if constexpr (is_half<T>)
    if (by != By::general)
      return cuda::tensor_attention_backward(
          call, by == By::few ? cuda::AttentionForm::few : cuda::AttentionForm::many, nullptr);
  cuda::attention_backward(call, nullptr);
}

// Operands of a part, and what the CPU makes of them.
template <class T>
struct ChunksOnCpu {
  static constexpr DType type = dtype_of<T>();
  const cuda::AttentionShape& s;
  Value q, k, v, dy, lse, documents;
  Draws draws;
  std::vector<Value> forward, backward;

  explicit ChunksOnCpu(const Share& part)
      : s(part.shape),
        q(random_value(type, {s.batch, s.seq, s.heads, s.queries, s.head_dim}, 1)),
        k(random_value(type, {s.batch, s.keys, s.heads, s.head_dim}, 2)),
        v(random_value(type, k.dims(), 3)),
        dy(random_value(type, q.dims(), 4)),
        lse(sum_type<T>(), {s.batch, s.heads, s.queries, s.seq}),
        documents(starts_of(part)),
        draws(s) {
    forward =
        cpu("attention_across", {q, k, v, zeros(q), lse, documents, Value(), draws.samples(), draws.seed()},
            attrs_of(s), {{0, 1, s.first}, {0, 2, Draws::first_head}}, Draws::layer);
    backward = cpu("attention_across_grad",
                   {dy, q, k, v, forward[3], forward[4], zeros(q), zeros(k), zeros(v), documents,
                    draws.samples(), draws.seed()},
                   attrs_of(s), {{1, 1, s.first}, {1, 2, Draws::first_head}}, Draws::layer);
  }
};

// Forward, then the gradient, from the CPU's y and the row sums that forward has left: of a row that sees few
// keys, the gradient is little more than how y is rounded.
template <class T>
class ChunksOnDevice {
 public:
  ChunksOnDevice(const ChunksOnCpu<T>& c, std::int64_t offset)
      : s_(c.s),
        q_(c.q, offset),
        k_(c.k, offset),
        v_(c.v, offset),
        dy_(c.dy, offset),
        y_in_(c.forward[3], offset),
        starts_(c.documents.dims().empty() ? integers(DType::i32, {1}, {0}) : c.documents),
        documents_(c.documents.dims().empty() ? nullptr : starts_.as<std::int32_t>()),
        draws_(c.draws.on_device()),
        y(poison(c.q), offset),
        lse(poison(c.lse)),
        dq(poison(c.q), offset),
        dk(poison(c.k), offset),
        dv(poison(c.v), offset) {}

  void run(By by) {
    const DeviceWorkspace workspace(cuda::attention_backward_workspace<T>(s_));
    cuda::for_chunks(forward(), [&](const cuda::AttentionForward<T>& chunk, const cuda::UnseenKeys&) {
      run_chunk<T>(chunk, by);
    });
    cuda::for_chunks(backward(workspace.data()),
                     [&](const cuda::AttentionBackward<T>& chunk, const cuda::UnseenKeys& unseen) {
                       cuda::clear_unseen(chunk, unseen, nullptr);
                       run_chunk<T>(chunk, by);
                     });
  }

 private:
  cuda::AttentionForward<T> forward() const {
    return {s_,
            queries<const T>(q_),
            keys<const T>(k_),
            keys<const T>(v_),
            queries<T>(y),
            lse.template as<cuda::Compute<T>>(),
            nullptr,
            documents_,
            draws_};
  }
  cuda::AttentionBackward<T> backward(void* workspace) const {
    return {s_,
            queries<const T>(dy_),
            queries<const T>(q_),
            keys<const T>(k_),
            keys<const T>(v_),
            queries<const T>(y_in_),
            lse.template as<cuda::Compute<T>>(),
            queries<T>(dq),
            keys<T>(dk),
            keys<T>(dv),
            workspace,
            documents_,
            draws_};
  }
  template <class U>
  cuda::Heads<U> queries(const OnDevice& at) const {
    return {at.as<T>(), cuda::head_strides(s_, s_.queries)};
  }
  template <class U>
  cuda::Heads<U> keys(const OnDevice& at) const {
    return {at.as<T>(), cuda::head_strides(cuda::shape_of_keys(s_), 1)};
  }

  const cuda::AttentionShape& s_;
  OnDevice q_, k_, v_, dy_, y_in_, starts_;
  const std::int32_t* documents_;
  cuda::AttentionDraws draws_;

 public:
  OnDevice y, lse, dq, dk, dv;
};

template <class T>
void expect_chunks_as_on_the_cpu(const Share& part, std::int64_t offset, By by) {
  const cuda::AttentionShape& s = part.shape;
  SCOPED_TRACE(text_of(s) + ", from " + std::to_string(s.first) + " of " + std::to_string(s.chunks));
  const ChunksOnCpu<T> want(part);
  ChunksOnDevice<T> got(want, offset);
  got.run(by);
  const double bound = std::is_same_v<T, double>       ? 1e-11
                       : std::is_same_v<T, float>      ? 2e-5
                       : std::is_same_v<T, prun::bf16> ? 0.02
                                                       : 0.005;
  expect_rows_close(got.y.value(), want.forward[3], s.head_dim, "y", bound);
  expect_rows_close(got.dq.value(), want.backward[6], s.head_dim, "dq", bound);
  expect_rows_close(got.dk.value(), want.backward[7], s.head_dim, "dk", bound);
  expect_rows_close(got.dv.value(), want.backward[8], s.head_dim, "dv", bound);
}

// Queries that see all keys, of which there are more or fewer than queries: around the tiles, of a decoder
// and its encoder, and of a rank that has a part of the queries.
std::vector<Share> shares_without_a_mask(std::int64_t head_dim, std::int64_t queries) {
  const auto full = [=](std::int64_t seq, std::int64_t keys, std::int64_t first = 0) {
    return Share{{.batch = 2,
                  .seq = seq,
                  .heads = 2,
                  .queries = queries,
                  .head_dim = head_dim,
                  .causal = false,
                  .keys = keys,
                  .first = first}};
  };
  std::vector<Share> all = {full(1, 33), full(30, 70), full(65, 9), full(33, 129), full(20, 60, 40)};
  if (!on_host) all.insert(all.end(), {full(114, 512), full(512, 2048), full(700, 64), full(2, 1000)});
  return all;
}

TEST_F(AttentionAcross, WithoutAMaskOnTensorCoresAsOnTheCpu) {
  for (const By by : {By::few, By::many})
    for (const std::int64_t head_dim : {64, 128})
      for (const std::int64_t queries : {1, 2})
        for (const Share& part : shares_without_a_mask(head_dim, queries)) {
          SCOPED_TRACE("keys " + std::to_string(part.shape.keys));
          expect_chunks_as_on_the_cpu<prun::bf16>(part, 0, by);
          expect_chunks_as_on_the_cpu<prun::f16>(part, 0, by);
        }
}

// What lies behind the last key is not read, and a second run changes no bit.
TEST_F(AttentionAcross, WithoutAMaskOnTensorCoresTheSameBitsEveryTime) {
  const Share part = shares_without_a_mask(64, 2)[1];
  const ChunksOnCpu<prun::bf16> on_cpu(part);
  for (const By by : {By::few, By::many}) {
    ChunksOnDevice<prun::bf16> one(on_cpu, 0), other(on_cpu, 0);
    one.run(by), other.run(by);
    for (const auto which :
         {&ChunksOnDevice<prun::bf16>::y, &ChunksOnDevice<prun::bf16>::lse, &ChunksOnDevice<prun::bf16>::dq,
          &ChunksOnDevice<prun::bf16>::dk, &ChunksOnDevice<prun::bf16>::dv})
      EXPECT_EQ((one.*which).value().bytes(), (other.*which).value().bytes());
  }
}

TEST_F(AttentionAhead, AsOnTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    for (const Share& part : shares_ahead(16, 30)) expect_chunks_as_on_the_cpu<T>(part, offset, By::general);
  });
}

TEST_F(AttentionAhead, DropsWhatTheCpuDrops) {
  for (Share part : shares_ahead(16, 30)) {
    part.shape.p = 0.3;
    expect_chunks_as_on_the_cpu<float>(part, 0, By::general);
  }
}

TEST_F(AttentionAhead, AsOnTheCpuOnTensorCores) {
  for (const std::int64_t head_dim : {64, 128})
    for (const By by : {By::few, By::many})
      for (const std::int64_t rows :
           on_host ? std::vector<std::int64_t>{90} : std::vector<std::int64_t>{90, 500})
        for (const Share& part : shares_ahead(head_dim, rows))
          expect_chunks_as_on_the_cpu<prun::bf16>(part, 0, by);
}

// All keys are there, in order: a window that is longer than a rank's part.
TEST_F(AttentionAhead, OfAllKeysInOrder) {
  for (const std::int64_t place : {0, 1, 2}) {
    Share part = shares_ahead(64, 50)[1];
    part.shape.window = 70, part.shape.ahead = 0, part.shape.keys = 150, part.shape.first = 50 * place;
    expect_chunks_as_on_the_cpu<prun::bf16>(part, 0, By::many);
    expect_chunks_as_on_the_cpu<float>(part, 0, By::general);
  }
}

// Tiles that lie whole in front of the first query's own key, and keys that no window reaches.
TEST_F(AttentionAhead, OnTensorCoresFarAhead) {
  for (const By by : {By::few, By::many})
    for (const bool documents : {false, true}) {
      Share part = shares_ahead(64, 40)[1];
      part.shape.window = 150, part.shape.ahead = 180, part.shape.keys = 220, part.shape.first = 200;
      part.documents = documents;
      expect_chunks_as_on_the_cpu<prun::bf16>(part, 0, by);
    }
}

// Windows that reach over chunks before the one before, and in front of the sequence.
TEST_F(AttentionAhead, OverMoreThanAChunk) {
  for (const std::size_t which : {1, 3, 4}) {
    Share part = shares_ahead(64, 30)[which];
    cuda::AttentionShape& s = part.shape;
    const std::int64_t count = (s.keys - s.seq) / s.ahead;
    s.ahead = 70, s.window = 71, s.keys = s.seq + count * s.ahead;
    expect_chunks_as_on_the_cpu<float>(part, 0, By::general);
    expect_chunks_as_on_the_cpu<prun::bf16>(part, 0, By::many);
  }
}

}  // namespace
}  // namespace prun::test::sequence_test
