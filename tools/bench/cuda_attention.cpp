// Times attention of training steps on a GPU, forward and backward, in bf16: prun's general kernels, those on
// tensor cores in both forms, and cuDNN's, queries, keys and values apart and packed. TFLOP/s count the
// scores that are not masked, half of all under a causal mask without a window, and backward as 2.5 times
// forward. Long sequences come with a window and without; tools/bench/flex_attention.py times the same in
// PyTorch. T5's has a bias by distance, or keys of an encoder; tools/bench/t5_attention.py compares it with
// PyTorch's. "µs" is of one call of many in a CUDA graph, as far as it can be captured, "launched" of one of
// many that the host launches, "off" the worst row's distance from what the general kernels give, as a part
// of its length.
//
//   build/bin/cuda_attention [PART OF A NAME [FILE FOR JSON]]
#include <chrono>
#include <memory>
#include <optional>

#include "attention/cuda_biased.hpp"
#include "attention/cuda_cudnn.hpp"
#include "attention/cuda_tensor.hpp"
#include "cuda/graph.hpp"
#include "tools/bench/cuda_bench.hpp"

namespace {

using namespace prun;
using namespace prun::bench;

struct Model {
  std::string name;
  cuda::AttentionShape shape;
};

const std::vector<Model> models = {{"GPT-2 124M", {64, 1024, 12, 1, 64}},
                                   {"GPT-2 1.5B", {16, 1024, 25, 1, 64}},
                                   {"Qwen2.5-7B", {8, 1024, 4, 7, 128}},
                                   {"Llama-3-8B", {1, 4096, 8, 4, 128}},
                                   {"12×512", {2, 512, 8, 1, 64}},
                                   {"short 128", {2, 128, 8, 1, 64}},
                                   {"short 256", {2, 256, 8, 1, 64}},
                                   {"short 1024", {2, 1024, 8, 1, 64}},
                                   {"short 512, wider", {2, 512, 12, 1, 64}},
                                   {"short 1024, batch 8", {8, 1024, 12, 1, 64}},
                                   {"short 512, 128 channels", {2, 512, 4, 2, 128}},
                                   {"window 4k", {1, 4096, 8, 4, 128, true, 1024}},
                                   {"window 8k", {1, 8192, 8, 4, 128, true, 1024}},
                                   {"window 16k", {1, 16384, 8, 4, 128, true, 1024}},
                                   {"window 32k", {1, 32768, 8, 4, 128, true, 1024}},
                                   {"window 64k", {1, 65536, 8, 4, 128, true, 1024}},
                                   {"full 4k", {1, 4096, 8, 4, 128}},
                                   {"full 8k", {1, 8192, 8, 4, 128}},
                                   {"full 16k", {1, 16384, 8, 4, 128}},
                                   {"full 32k", {1, 32768, 8, 4, 128}},
                                   {"full 64k", {1, 65536, 8, 4, 128}}};

// Returns the queries of some positions, of which the last sees all `keys` keys: a rank has these where ranks
// share out a sequence.
Model queries(const std::string& name, std::int64_t rows, std::int64_t keys) {
  return {name, {.batch = 1, .seq = rows, .heads = 8, .queries = 4, .head_dim = 128, .keys = keys}};
}
const std::vector<Model> runs = {queries("2k of 8k", 2048, 8192),     queries("2k of 32k", 2048, 32768),
                                 queries("4k of 16k", 4096, 16384),   queries("4k of 24k", 4096, 24576),
                                 queries("8k of 8k", 8192, 8192),     queries("8k of 16k", 8192, 16384),
                                 queries("8k of 24k", 8192, 24576),   queries("8k of 32k", 8192, 32768),
                                 queries("16k of 24k", 16384, 24576), queries("16k of 32k", 16384, 32768)};

// T5-base's: its encoder, its decoder, and its decoder beside an encoder of four times its length, and as
// spans of 15 % leave them.
const std::vector<Model> biased_models = {{"T5 encoder", {32, 512, 12, 1, 64, false}},
                                          {"T5 decoder", {32, 512, 12, 1, 64, true}}};
Model decoder(const std::string& name, std::int64_t rows, std::int64_t keys) {
  return {
      name,
      {.batch = 32, .seq = rows, .heads = 12, .queries = 1, .head_dim = 64, .causal = false, .keys = keys}};
}
const std::vector<Model> decoders = {decoder("T5 across, 512 of 2048", 512, 2048),
                                     decoder("T5 across, 114 of 512", 114, 512)};

double forward_flops(const cuda::AttentionShape& s) {
  const double seq = static_cast<double>(s.seq), window = static_cast<double>(s.window);
  const double keys = !s.causal                    ? static_cast<double>(cuda::shape_of_keys(s).seq)
                      : s.across()                 ? static_cast<double>(s.keys) - seq / 2
                      : window > 0 && window < seq ? window - window * window / (2 * seq)
                                                   : seq / 2;
  return 4.0 * static_cast<double>(s.query_rows() * s.head_dim) * keys;
}

// Holds the operands of a model's calls.
struct Calls {
  cuda::AttentionForward<bf16> forward;
  cuda::AttentionBackward<bf16> backward;
  cuda::AttentionLayout layout;

  Calls(Pool& pool, const cuda::AttentionShape& s, bool packed) {
    const cuda::AttentionShape of_keys = cuda::shape_of_keys(s);
    const std::int64_t slots = s.queries + 2, slot = s.batch * of_keys.seq * s.heads * s.head_dim;
    const auto part = [&](bf16* all, std::int64_t first, std::int64_t count) {
      if (packed) return cuda::Heads<bf16>{all + first * s.head_dim, cuda::head_strides(s, slots)};
      return cuda::Heads<bf16>{all + first * slot, cuda::head_strides(first == 0 ? s : of_keys, count)};
    };
    const auto whole = [&](bf16* all) { return cuda::Heads<bf16>{all, cuda::head_strides(s, s.queries)}; };
    const auto in = [](const cuda::Heads<bf16>& heads) {
      return cuda::Heads<const bf16>{heads.data, heads.strides};
    };
    bf16 *x = pool.take<bf16>(slots * slot), *dx = pool.take<bf16>(slots * slot);
    const auto q = in(part(x, 0, s.queries)), k = in(part(x, s.queries, 1)),
               v = in(part(x, s.queries + 1, 1));
    const auto y = whole(pool.take<bf16>(s.queries * slot));
    const auto dy = whole(pool.take<bf16>(s.queries * slot));
    float* lse = pool.take<float>(s.query_rows());
    forward = {s, q, k, v, y, lse};
    backward = {s,
                in(dy),
                q,
                k,
                v,
                in(y),
                lse,
                part(dx, 0, s.queries),
                part(dx, s.queries, 1),
                part(dx, s.queries + 1, 1),
                nullptr};
    layout = {s, q.strides, k.strides, v.strides, y.strides};
  }
};

// Copies rows of a result, some of the first and some of the last.
class Sample {
 public:
  Sample(const bf16* data, std::int64_t elements, std::int64_t width) : width_(width) {
    const std::int64_t most = (std::int64_t{1} << 21) / width * width, part = std::min(elements, most);
    values_.resize(static_cast<std::size_t>(2 * part));
    const auto bytes = static_cast<std::size_t>(part) * sizeof(bf16);
    check(cudaMemcpy(values_.data(), data, bytes, cudaMemcpyDeviceToHost));
    check(cudaMemcpy(values_.data() + part, data + elements - part, bytes, cudaMemcpyDeviceToHost));
  }
  // Returns the worst row's distance, as a part of its length or of a tenth of the usual one.
  double off(const Sample& right) const {
    const auto width = static_cast<std::size_t>(width_), rows = values_.size() / width;
    double all = 0, worst = 0;
    for (const bf16 value : right.values_) all += square(float(value));
    const double usual = std::sqrt(all / static_cast<double>(rows));
    for (std::size_t row = 0; row < rows; ++row) {
      double distance = 0, length = 0;
      for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
        distance += square(float(values_[i]) - float(right.values_[i]));
        length += square(float(right.values_[i]));
      }
      const double off = std::sqrt(distance) / std::max(std::sqrt(length), usual / 10);
      if (!(off <= worst)) worst = off;
    }
    return worst;
  }

 private:
  static double square(double x) { return x * x; }
  std::int64_t width_;
  std::vector<bf16> values_;
};

class Bench {
 public:
  Bench(const std::string& filter, Results& results) : filter_(filter), results_(results), pool_(6LL << 30) {
    check(cudaStreamCreate(&stream_));
    try {
      cudnn_ = std::make_unique<cuda::CudnnAttention>();
      results_.add({cell("library", cudnn_->version()), cell("path", cudnn_->path())});
    } catch (const Error& error) {
      results_.add({cell("library", error.what()), cell("path", "")});
    }
  }

  void run_of_queries(const Model& m) {
    if (m.name.find(filter_) == std::string::npos || !cudnn_) return;
    pool_.reset();
    right_y_.reset(), right_dx_.reset();
    Calls calls(pool_, m.shape, false);
    with_cudnn(m.name, calls);
  }

  void without_mask(const Model& m) {
    if (m.name.find(filter_) == std::string::npos) return;
    pool_.reset();
    right_y_.reset(), right_dx_.reset();
    Calls calls(pool_, m.shape, false);
    own(m.name, calls);
    on_tensor_cores(m.name, calls);
  }

  // With T5's table of 32 buckets up to a distance of 128.
  void biased(const Model& m) {
    if (m.name.find(filter_) == std::string::npos) return;
    pool_.reset();
    right_y_.reset(), right_dx_.reset();
    constexpr std::int64_t buckets = 32;
    const cuda::AttentionShape& s = m.shape;
    Calls calls(pool_, s, false);
    const cuda::DistanceBias<bf16> bias{pool_.take<bf16>(s.heads * buckets),
                                        cuda::bounds_of({buckets, 128, s.causal}, s.seq), 0.125};
    bf16* const dtable = pool_.take<bf16>(s.heads * buckets);
    const std::int64_t bytes = cuda::attention_biased_workspace<bf16>(s),
                       back = cuda::attention_biased_backward_workspace<bf16>(s, buckets);
    calls.forward.workspace = pool_.take<char>(bytes);
    calls.backward.workspace = pool_.take<char>(back);
    for (const Form form : {Form(), Form(cuda::AttentionForm::few), Form(cuda::AttentionForm::many)}) {
      const std::string kernel = kernel_name(form, s);
      forward(m.name, kernel, calls, bytes, 0, [&] {
        cuda::attention_biased<bf16>({calls.forward, bias, form}, stream_);
      });
      backward(m.name, "backward", kernel, calls, back, 0, [&] {
        cuda::attention_biased_backward<bf16>({calls.backward, bias, dtable, form}, stream_);
      });
    }
  }

  void model(const Model& m) {
    for (const bool packed : {false, true}) {
      const std::string name = m.name + (packed ? ", packed" : ", apart");
      if (name.find(filter_) == std::string::npos) continue;
      pool_.reset();
      right_y_.reset(), right_dx_.reset();
      Calls calls(pool_, m.shape, packed);
      if (m.shape.seq <= 4096) own(name, calls);  // beyond, they would take too long
      if (cuda::tensor_attention_takes(calls.backward)) on_tensor_cores(name, calls);
      if (cudnn_) with_cudnn_if_it_can(name, calls);
    }
  }

 private:
  using Form = std::optional<cuda::AttentionForm>;

  // Marks the form that would be chosen.
  static std::string kernel_name(Form form, const cuda::AttentionShape& s) {
    if (!form) return "prun";
    return std::string("tensor cores, ") + (*form == cuda::AttentionForm::few ? "few" : "many") +
           (*form == cuda::attention_form(s) ? "*" : "");
  }

  void own(const std::string& name, Calls& c) {
    const std::int64_t bytes = cuda::attention_backward_workspace<bf16>(c.forward.shape);
    c.backward.workspace = pool_.take<char>(bytes);
    forward(name, "prun", c, 0, 0, [&] { cuda::attention(c.forward, stream_); });
    backward(name, "backward", "prun", c, bytes, 0, [&] { cuda::attention_backward(c.backward, stream_); });
  }

  void on_tensor_cores(const std::string& name, Calls& c) {
    for (const auto form : {cuda::AttentionForm::few, cuda::AttentionForm::many}) {
      const std::string kernel = kernel_name(form, c.forward.shape);
      forward(name, kernel, c, 0, 0, [&] { cuda::tensor_attention(c.forward, form, stream_); });
      backward(name, "backward", kernel, c, 0, 0,
               [&] { cuda::tensor_attention_backward(c.backward, form, stream_); });
    }
  }

  // Releases of cuDNN differ in the windows that they support.
  void with_cudnn_if_it_can(const std::string& name, Calls& c) {
    try {
      with_cudnn(name, c);
    } catch (const Error& error) {
      if (c.forward.shape.window == 0) throw;
      results_.add({cell("attention", name), cell("refused", error.what())});
    }
  }

  void with_cudnn(const std::string& name, Calls& c) {
    auto begin = Clock::now();
    const cuda::CudnnPlan plan = cudnn_->prepare(c.layout, stream_);
    double prepared = seconds_since(begin);
    c.forward.workspace = pool_.take<char>(plan.workspace());
    forward(name, "cuDNN " + plan.algorithm(), c, plan.workspace(), prepared,
            [&] { cudnn_->run(plan, c.forward); });
    for (const bool deterministic : {false, true}) {
      begin = Clock::now();
      const cuda::CudnnPlan grad = cudnn_->prepare_backward(c.layout, deterministic, stream_);
      prepared = seconds_since(begin);
      c.backward.workspace = pool_.take<char>(grad.workspace());
      backward(name, deterministic ? "backward, deterministic" : "backward", "cuDNN " + grad.algorithm(), c,
               grad.workspace(), prepared, [&] { cudnn_->run(grad, c.backward); });
    }
  }

  void forward(const std::string& name, const std::string& kernel, Calls& c, std::int64_t workspace,
               double prepared, const std::function<void()>& launch) {
    const cuda::AttentionShape& s = c.forward.shape;
    const std::int64_t elements = s.query_rows() * s.head_dim;
    const double off = off_after(launch, c.forward.y.data, elements, s.head_dim, right_y_);
    row(name, "forward", kernel, c, 1, workspace, prepared, off, launch);
  }
  void backward(const std::string& name, const char* which, const std::string& kernel, Calls& c,
                std::int64_t workspace, double prepared, const std::function<void()>& launch) {
    const cuda::AttentionShape& s = c.forward.shape;
    // Where keys are of other positions, gradients of theirs do not follow those of queries.
    const std::int64_t slots = s.queries + (s.across() ? 0 : 2),
                       elements = s.batch * s.seq * s.heads * slots * s.head_dim;
    const double off = off_after(launch, c.backward.dq.data, elements, s.head_dim, right_dx_);
    row(name, which, kernel, c, 2.5, workspace, prepared, off, launch);
  }

  // The first result must be right.
  double off_after(const std::function<void()>& launch, bf16* result, std::int64_t elements,
                   std::int64_t width, std::unique_ptr<Sample>& right) {
    check(cudaMemset(result, 0xff, static_cast<std::size_t>(elements) * sizeof(bf16)));
    launch();
    check(cudaDeviceSynchronize());
    auto got = std::make_unique<Sample>(result, elements, width);
    if (!right) right = std::move(got);
    return got ? got->off(*right) : 0;
  }

  void row(const std::string& name, const char* which, const std::string& kernel, const Calls& c,
           double forwards, std::int64_t workspace, double prepared, double off,
           const std::function<void()>& launch) {
    const cuda::AttentionShape& s = c.forward.shape;
    const double launched = timer_(launch), host = host_seconds(launch);
    const double seconds = std::min(launched, seconds_in_graph(launch));
    results_.add({cell("attention", name), cell("batch×seq", by(s.batch, s.seq)),
                  cell("heads×head_dim", by(s.heads * s.queries, s.head_dim)), cell("which", which),
                  cell("kernel", kernel), cell("µs", seconds * 1e6, 2), cell("launched", launched * 1e6, 2),
                  cell("host, µs", host * 1e6, 1),
                  cell("TFLOP/s", 1e-12 * forwards * forward_flops(s) / seconds, 1), cell("off", off, 4),
                  cell("workspace, MiB", static_cast<double>(workspace) / (1 << 20), 1),
                  cell("prepared in s", prepared, 2)});
  }

  // Returns infinity where it cannot be captured.
  double seconds_in_graph(const std::function<void()>& launch) {
    constexpr int count = 20;
    try {
      const cuda::Graph graph(stream_, [&] {
        for (int i = 0; i < count; ++i) launch();
      });
      return timer_([&] { graph.run(stream_); }) / count;
    } catch (const Error&) {
      return INFINITY;
    }
  }

  // Returns the time that a call takes the thread which enqueues it.
  static double host_seconds(const std::function<void()>& launch) {
    constexpr int count = 20;
    check(cudaDeviceSynchronize());
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) launch();
    const double seconds = seconds_since(begin);
    check(cudaDeviceSynchronize());
    return seconds / count;
  }

  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  std::string filter_;
  Results& results_;
  std::unique_ptr<cuda::CudnnAttention> cudnn_;
  Pool pool_;
  Timer timer_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Sample> right_y_, right_dx_;
};

void time_all(const std::string& filter, Results& results) {
  Bench bench(filter, results);
  for (const Model& model : models) bench.model(model);
  for (const Model& model : runs) bench.run_of_queries(model);
  for (const Model& model : biased_models) bench.biased(model);
  for (const Model& model : decoders) bench.without_mask(model);
}

}  // namespace

int main(int count, char** arguments) { return run("cuda_attention", count, arguments, time_all); }
