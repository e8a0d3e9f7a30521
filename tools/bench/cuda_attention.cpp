// Times causal attention of training steps on a GPU, forward and backward, in bf16: prun's own kernels and
// cuDNN's, queries, keys and values apart and packed. TFLOP/s count the half of the scores that is not
// masked, and backward as 2.5 times forward.
//
//   build/bin/cuda_attention [PART OF A NAME [FILE FOR JSON]]
#include <chrono>
#include <memory>

#include "cuda/attention_cudnn.hpp"
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
                                   {"Llama-3-8B", {1, 4096, 8, 4, 128}}};

double forward_flops(const cuda::AttentionShape& s) {
  return 2.0 * static_cast<double>(s.query_rows()) * static_cast<double>(s.seq * s.head_dim);
}

// The operands of a model's calls.
struct Calls {
  cuda::AttentionForward<bf16> forward;
  cuda::AttentionBackward<bf16> backward;
  cuda::AttentionLayout layout;

  Calls(Pool& pool, const cuda::AttentionShape& s, bool packed) {
    const std::int64_t slots = s.queries + 2, slot = s.batch * s.seq * s.heads * s.head_dim;
    const auto part = [&](bf16* all, std::int64_t first, std::int64_t count) {
      if (packed) return cuda::Heads<bf16>{all + first * s.head_dim, cuda::head_strides(s, slots)};
      return cuda::Heads<bf16>{all + first * slot, cuda::head_strides(s, count)};
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

class Bench {
 public:
  Bench(const std::string& filter, Results& results) : filter_(filter), results_(results), pool_(6LL << 30) {
    try {
      cudnn_ = std::make_unique<cuda::CudnnAttention>();
      results_.add({cell("library", cudnn_->version()), cell("path", cudnn_->path())});
    } catch (const Error& error) {
      results_.add({cell("library", error.what()), cell("path", "")});
    }
  }

  void model(const Model& m) {
    for (const bool packed : {false, true}) {
      const std::string name = m.name + (packed ? ", packed" : ", apart");
      if (name.find(filter_) == std::string::npos) continue;
      pool_.reset();
      Calls calls(pool_, m.shape, packed);
      own(name, calls);
      if (cudnn_) with_cudnn(name, calls);
    }
  }

 private:
  void own(const std::string& name, Calls& c) {
    const std::int64_t bytes = cuda::attention_backward_workspace<bf16>(c.forward.shape);
    c.backward.workspace = pool_.take<char>(bytes);
    row(name, "forward", "prun", c, 1, 0, 0, [&] { cuda::attention(c.forward, nullptr); });
    row(name, "backward", "prun", c, 2.5, bytes, 0, [&] { cuda::attention_backward(c.backward, nullptr); });
  }

  void with_cudnn(const std::string& name, Calls& c) {
    auto begin = Clock::now();
    const cuda::CudnnPlan forward = cudnn_->prepare(c.layout, nullptr);
    double prepared = seconds_since(begin);
    c.forward.workspace = pool_.take<char>(forward.workspace());
    row(name, "forward", "cuDNN " + forward.algorithm(), c, 1, forward.workspace(), prepared,
        [&] { cudnn_->run(forward, c.forward); });
    for (const bool deterministic : {false, true}) {
      begin = Clock::now();
      const cuda::CudnnPlan backward = cudnn_->prepare_backward(c.layout, deterministic, nullptr);
      prepared = seconds_since(begin);
      c.backward.workspace = pool_.take<char>(backward.workspace());
      row(name, deterministic ? "backward, deterministic" : "backward", "cuDNN " + backward.algorithm(), c,
          2.5, backward.workspace(), prepared, [&] { cudnn_->run(backward, c.backward); });
    }
  }

  void row(const std::string& name, const char* which, const std::string& kernel, const Calls& c,
           double forwards, std::int64_t workspace, double prepared, const std::function<void()>& launch) {
    const cuda::AttentionShape& s = c.forward.shape;
    const double seconds = timer_(launch), host = host_seconds(launch);
    results_.add({cell("attention", name), cell("batch×seq", by(s.batch, s.seq)),
                  cell("heads×head_dim", by(s.heads * s.queries, s.head_dim)), cell("which", which),
                  cell("kernel", kernel), cell("ms", seconds * 1e3, 3), cell("host, µs", host * 1e6, 1),
                  cell("TFLOP/s", 1e-12 * forwards * forward_flops(s) / seconds, 1),
                  cell("workspace, MiB", static_cast<double>(workspace) / (1 << 20), 1),
                  cell("prepared in s", prepared, 2)});
  }

  // What a call costs the thread that enqueues it.
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
};

void time_all(const std::string& filter, Results& results) {
  Bench bench(filter, results);
  for (const Model& model : models) bench.model(model);
}

}  // namespace

int main(int count, char** arguments) { return run("cuda_attention", count, arguments, time_all); }
