// attention_biased on the device against the CPU's: every type, both directions and a causal mask, lengths
// around the tiles, groups of queries, and buckets that hold one distance, many, or none.
#include "attention/cuda_biased.hpp"

#include "tests/cuda/attention_case.hpp"

namespace prun::test::attention_biased_test {
namespace {

using cuda::AttentionForm;
using Form = std::optional<AttentionForm>;  // none: the general kernels

using AttentionBiased = CudaTest;

struct Case {
  cuda::AttentionShape shape;
  std::int64_t buckets = 32, distance = 128;
  double scale = 1;

  RelativeBuckets relative() const { return {buckets, distance, shape.causal}; }
  std::vector<Attr> attrs() const { return {{.i = shape.causal}, {.i = distance}, {.f = scale}}; }
};

std::vector<Case> cases() {
  std::vector<Case> all = {{{1, 1, 1, 1, 8, true}},
                           {{1, 1, 1, 1, 8, false}},
                           {{2, 7, 2, 1, 5, false}, 4, 3},
                           {{2, 9, 2, 2, 5, true}, 6, 7, 0.7},
                           {{1, 64, 1, 1, 64, false}, 32, 128, 0.125},
                           {{1, 65, 2, 2, 17, true}, 32, 40, 0.25},
                           {{2, 90, 2, 1, 16, false}, 8, 20, 0.25},
                           {{1, 130, 1, 2, 32, false}, 32, 128, 0.2},
                           {{1, 200, 2, 1, 64, true}, 32, 128, 0.125},
                           {{1, 100, 1, 1, 130, false}, 16, 50, 0.1},
                           {{1, 70, 1, 1, 256, true}, 256 / 2, 300, 0.06},
                           {{1, 100, 1, 1, 64, true}, 32, 60, 0.125},
                           {{1, 70, 1, 2, 64, false}, 32, 128, 0.125},
                           {{1, 90, 1, 1, 128, false}, 16, 64, 0.09},
                           {{1, 150, 2, 1, 128, true}, 32, 128, 0.09},
                           {{3, 150, 3, 1, 64, false}, 32, 128, 0.125},
                           {{1, 300, 2, 1, 64, false}, 256, 1000, 0.125}};
  const auto takes_long = [](const Case& c) { return c.shape.query_rows() * c.shape.seq > 20'000; };
  if (on_host) std::erase_if(all, takes_long);
  return all;
}

// A case's operands, and what the CPU's kernels say.
template <class T>
struct Reference {
  AttentionReference<T> r;
  Value q, k, v, table, dtable;

  explicit Reference(const Case& c)
      : r(c.shape),
        q(r.queries(r.x)),
        k(r.keys(r.x)),
        v(r.values(r.x)),
        table(random_value(dtype_of<T>(), {c.shape.heads, c.buckets}, 7)),
        dtable(zeros(table)) {
    const std::vector<Value> forward = cpu("attention_biased", {q, k, v, table, r.y, r.lse}, c.attrs());
    r.y = forward[4], r.lse = forward[5];
    const std::vector<Value> backward =
        cpu("attention_biased_grad", {r.dy, q, k, v, table, r.y, r.lse, r.dq, r.dk, r.dv, dtable}, c.attrs());
    r.dq = backward[7], r.dk = backward[8], r.dv = backward[9], dtable = backward[10];
  }
};

template <class T>
cuda::DistanceBias<T> bias_of(const Case& c, const OnDevice& table) {
  return {table.as<T>(), cuda::bounds_of(c.relative(), c.shape.seq), c.scale};
}

template <class T>
void run_forward(const Case& c, AttentionOnDevice<T>& device, const OnDevice& table, Form form = {}) {
  const DeviceWorkspace workspace(cuda::attention_biased_workspace<T>(c.shape));
  cuda::attention_biased<T>({device.forward(workspace.data()), bias_of<T>(c, table), form}, nullptr);
}

template <class T>
Value run_backward(const Case& c, AttentionOnDevice<T>& device, const OnDevice& table, Form form = {}) {
  OnDevice dtable(dtype_of<T>(), {c.shape.heads, c.buckets});
  {
    const DeviceWorkspace workspace(cuda::attention_biased_backward_workspace<T>(c.shape, c.buckets));
    cuda::attention_biased_backward<T>(
        {device.backward(workspace.data()), bias_of<T>(c, table), dtable.as<T>(), form}, nullptr);
  }
  return dtable.value();
}

template <class Body>
void for_cases(Body body) {
  for_types([&]<class T>(std::int64_t offset) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(text_of(c.shape) + ", " + std::to_string(c.buckets) + " buckets up to " +
                   std::to_string(c.distance));
      const Reference<T> reference(c);
      AttentionOnDevice<T> device(reference.r, false, offset);
      body(c, reference, device, OnDevice(reference.table));
    }
  });
}

// Halves are rounded from what agrees far better; on tensor cores weights are rounded too. Of fp16 that is an
// eighth of bf16's.
template <class T>
void expect_alike(const Value& got, const Value& want, std::int64_t width, const char* what) {
  if constexpr (is_half<T>)
    expect_rows_close(got, want, width, what, std::is_same_v<T, bf16> ? 0.02 : 0.005);
  else
    expect_close(got, want.numbers(), std::is_same_v<T, double> ? 1e-12 : 2e-5, what);
}

// Returns the forms that a call may run in: those on tensor cores where these take it.
template <class Call>
std::vector<Form> forms(const Call& call) {
  if (cuda::tensor_attention_takes(call)) return {AttentionForm::few, AttentionForm::many};
  return {std::nullopt};
}

TEST_F(AttentionBiased, ForwardAsOnTheCpu) {
  for_cases(
      []<class T>(const Case& c, const Reference<T>& want, AttentionOnDevice<T>& got, const OnDevice& table) {
        for (const Form form : forms(got.forward(nullptr))) {
          run_forward(c, got, table, form);
          expect_alike<T>(got.y(), want.r.y, c.shape.head_dim, "y");
          expect_close(got.lse(), want.r.lse.numbers(), std::is_same_v<T, double> ? 1e-12 : 2e-5, "lse");
        }
      });
}

TEST_F(AttentionBiased, BackwardAsOnTheCpu) {
  for_cases(
      []<class T>(const Case& c, const Reference<T>& want, AttentionOnDevice<T>& got, const OnDevice& table) {
        for (const Form form : forms(got.backward(nullptr))) {
          const Value dtable = run_backward(c, got, table, form);
          expect_alike<T>(got.dq(), want.r.dq, c.shape.head_dim, "dq");
          expect_alike<T>(got.dk(), want.r.dk, c.shape.head_dim, "dk");
          expect_alike<T>(got.dv(), want.r.dv, c.shape.head_dim, "dv");
          expect_alike<T>(dtable, want.dtable, c.buckets, "dtable");
        }
      });
}

// The general kernels take what those on tensor cores take, too.
TEST_F(AttentionBiased, WhichKernelsRunIsTheCallersChoice) {
  const Case c{{1, 70, 2, 1, 64, false}, 32, 128, 0.125};
  const Reference<bf16> reference(c);
  const OnDevice table(reference.table);
  AttentionOnDevice<bf16> device(reference.r, false);
  std::vector<std::vector<char>> results;
  for (const Form form : {Form(), Form(AttentionForm::few), Form(AttentionForm::many)}) {
    run_forward(c, device, table, form);
    expect_alike<bf16>(device.y(), reference.r.y, c.shape.head_dim, "y");
    const Value dtable = run_backward(c, device, table, form);
    expect_alike<bf16>(dtable, reference.dtable, c.buckets, "dtable");
    results.push_back(device.y().bytes());
  }
  EXPECT_NE(results[0], results[1]);
  EXPECT_NE(results[0], results[2]);
}

// Runs both ways, several times.
template <class T>
void expect_the_same_bits(const Case& c, Form form) {
  const Reference<T> reference(c);
  const OnDevice table(reference.table);
  std::vector<Value> first;
  for (int run = 0; run < 3; ++run) {
    AttentionOnDevice<T> device(reference.r, false);
    run_forward(c, device, table, form);
    const Value dtable = run_backward(c, device, table, form);
    const std::vector<Value> results = {device.y(),  device.lse(), device.dq(),
                                        device.dk(), device.dv(),  dtable};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(results[i].bytes(), first[i].bytes()) << "result " << i;
  }
}

TEST_F(AttentionBiased, TheSameBitsEveryTime) {
  const Case c{{2, on_host ? 70 : 300, 2, 2, 64, false}, 32, 128, 0.125};
  for (const Form form : {Form(), Form(AttentionForm::few), Form(AttentionForm::many)})
    expect_the_same_bits<bf16>(c, form);
  expect_the_same_bits<f16>(c, AttentionForm::many);
}

// Where buckets begin says of every distance what the buckets say of it.
TEST(DistanceBuckets, BoundsHoldEveryDistance) {
  for (const bool causal : {false, true})
    for (const auto& [count, distance, seq] :
         {std::tuple{32, 128, 600}, {4, 3, 9}, {8, 20, 5}, {128, 300, 1000}, {32, 1'000'000, 4096}}) {
      const RelativeBuckets buckets{count, distance, causal};
      const cuda::BucketBounds bounds = cuda::bounds_of(buckets, seq);
      EXPECT_EQ(bounds.each, buckets.each());
      EXPECT_EQ(bounds.first[0], 0);
      EXPECT_EQ(bounds.first[bounds.each], seq);
      for (std::int64_t away = 0; away < seq; ++away) {
        const std::int64_t bucket = buckets.of_distance(away);
        EXPECT_TRUE(bounds.first[bucket] <= away && away < bounds.first[bucket + 1]) << away << " of " << seq;
      }
    }
  EXPECT_THROW(cuda::bounds_of({512, 1000, true}, 64), Error);
}

}  // namespace
}  // namespace prun::test::attention_biased_test
