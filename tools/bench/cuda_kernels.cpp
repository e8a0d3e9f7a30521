// Times CUDA kernels, most of them bound by memory, on large shapes and prints a table: bytes moved (every
// operand read or written once), time, bandwidth, and its share of the bandwidth that a copy has in the same
// run.
//
//   build/bin/cuda_kernels [PART OF A NAME [FILE FOR JSON]]
#include "activation/cuda.hpp"
#include "bias/cuda.hpp"
#include "delta_rule/cuda.hpp"
#include "dropout/cuda.hpp"
#include "elementwise/cuda.hpp"
#include "embedding/cuda.hpp"
#include "heads/cuda.hpp"
#include "lm_head/cuda.hpp"
#include "memory/cuda.hpp"
#include "norm/cuda.hpp"
#include "optimizer/cuda.hpp"
#include "rope/cuda.hpp"
#include "short_conv/cuda.hpp"
#include "tools/bench/cuda_bench.hpp"

namespace {

using namespace prun;
using namespace prun::bench;

class Table {
 public:
  Table(const std::string& filter, Pool& pool, Results& results)
      : filter_(filter), pool_(pool), results_(results) {
    copy_ = row("copy", "1 GiB", "bytes", 2LL << 30, copy_bytes());
  }
  // `make` returns a function that launches the kernel once, on fresh memory.
  void add(const std::string& name, const std::string& shape, const char* type, std::int64_t bytes,
           const std::function<std::function<void()>(Pool&)>& make) {
    if (name.find(filter_) == std::string::npos) return;
    pool_.reset();
    row(name, shape, type, bytes, make(pool_));
  }
  void finish() { row("copy, again", "1 GiB", "bytes", 2LL << 30, copy_bytes()); }

 private:
  std::function<void()> copy_bytes() {
    pool_.reset();
    const std::int64_t bytes = 1LL << 30;
    return [from = pool_.take<char>(bytes), to = pool_.take<char>(bytes), bytes] {
      cuda::copy(from, to, bytes, nullptr);
    };
  }
  double row(const std::string& name, const std::string& shape, const char* type, std::int64_t bytes,
             const std::function<void()>& launch) {
    const double seconds = timer_(launch), rate = static_cast<double>(bytes) / seconds;
    results_.add({cell("kernel", name), cell("shape", shape), cell("type", type),
                  cell("MB moved", static_cast<double>(bytes) * 1e-6, 0), cell("µs", seconds * 1e6, 1),
                  cell("GB/s", rate * 1e-9, 0),
                  cell("% of copy", 100 * rate / (copy_ > 0 ? copy_ : rate), 1)});
    return rate;
  }
  std::string filter_;
  Pool& pool_;
  Results& results_;
  Timer timer_;
  double copy_ = 0;
};

template <class T>
void elementwise(Table& table, std::int64_t n) {
  const char* type = name_of(dtype_of<T>());
  const std::string shape = std::to_string(n);
  table.add("add", shape, type, 3 * n * size<T>, [=](Pool& p) {
    return [=, a = p.take<T>(n), b = p.take<T>(n), y = p.take<T>(n)] { cuda::add(a, b, y, n, nullptr); };
  });
  table.add("scale", shape, type, 2 * n * size<T>, [=](Pool& p) {
    return [=, x = p.take<T>(n), y = p.take<T>(n)] { cuda::scale(x, y, 0.5, n, nullptr); };
  });
  table.add("cast from fp32", shape, type, n * (4 + size<T>), [=](Pool& p) {
    return [=, x = p.take<float>(n), y = p.take<T>(n)] { cuda::cast(x, y, n, nullptr); };
  });
  table.add("accumulate", shape, type, n * (8 + size<T>), [=](Pool& p) {
    return [=, x = p.take<T>(n), y = p.take<float>(n)] { cuda::accumulate(x, y, n, nullptr); };
  });
}

template <class T>
cuda::NormForward<T> forward(Pool& p, std::int64_t rows, std::int64_t width) {
  using C = cuda::Compute<T>;
  const std::int64_t n = rows * width;
  return {p.take<T>(n),
          p.take<T>(n),
          p.take<T>(n),
          p.take<T>(width),
          p.take<T>(width),
          p.take<T>(n),
          p.take<C>(rows),
          p.take<C>(rows),
          rows,
          width,
          1e-5};
}

template <class T>
cuda::NormBackward<T> backward(Pool& p, std::int64_t rows, std::int64_t width) {
  using C = cuda::Compute<T>;
  const std::int64_t n = rows * width;
  return {p.take<T>(n),
          p.take<T>(n),
          p.take<T>(width),
          p.take<C>(rows),
          p.take<C>(rows),
          p.take<T>(n),
          p.take<T>(n),
          p.take<C>(width),
          p.take<C>(width),
          rows,
          width,
          p.take<char>(cuda::norm_backward_workspace<T>(rows, width))};
}

// Sums the residual too, in place of a bias' gradient by itself.
template <class T>
cuda::NormBackward<T> backward_with_sum(Pool& p, std::int64_t rows, std::int64_t width) {
  cuda::NormBackward<T> norm = backward<T>(p, rows, width);
  norm.residual_sum = p.take<cuda::Compute<T>>(width);
  return norm;
}

template <class T>
void norms(Table& table, std::int64_t rows, std::int64_t width) {
  const char* type = name_of(dtype_of<T>());
  const std::int64_t bytes = 4 * rows * width * size<T>;
  table.add("residual + rmsnorm", by(rows, width), type, bytes,
            [=](Pool& p) { return [norm = forward<T>(p, rows, width)] { cuda::rmsnorm(norm, nullptr); }; });
  table.add("residual + layernorm", by(rows, width), type, bytes,
            [=](Pool& p) { return [norm = forward<T>(p, rows, width)] { cuda::layernorm(norm, nullptr); }; });
  table.add("rmsnorm backward, all gradients", by(rows, width), type, bytes, [=](Pool& p) {
    return [norm = backward<T>(p, rows, width)] { cuda::rmsnorm_backward(norm, nullptr); };
  });
  table.add("layernorm backward, all gradients", by(rows, width), type, bytes, [=](Pool& p) {
    return [norm = backward<T>(p, rows, width)] { cuda::layernorm_backward(norm, nullptr); };
  });
  table.add("layernorm backward, all gradients and a bias'", by(rows, width), type, bytes, [=](Pool& p) {
    return [norm = backward_with_sum<T>(p, rows, width)] { cuda::layernorm_backward(norm, nullptr); };
  });
}

void rope(Table& table, const cuda::RopeShape& shape) {
  const std::int64_t rows = shape.batch * shape.seq * shape.heads, keys = rows * shape.head_dim;
  const std::int64_t queries = keys * (shape.packed - 2), n = queries + 2 * keys;
  const cuda::HeadsShape heads = {rows, shape.packed, shape.head_dim};
  const std::string name =
      by(shape.batch, shape.seq) + "×" + by(shape.heads, shape.packed) + "×" + std::to_string(shape.head_dim);
  const auto add = [&](const char* kernel, auto launch) {
    table.add(kernel, name, "bf16", 4 * n, [=](Pool& p) {
      return [=, x = p.take<bf16>(n), q = p.take<bf16>(queries), k = p.take<bf16>(keys),
              v = p.take<bf16>(keys)] { launch(x, q, k, v); };
    });
  };
  add("rope", [=](bf16* x, bf16* q, bf16* k, bf16* v) { cuda::rope(x, q, k, v, shape, nullptr); });
  add("rope backward",
      [=](bf16* x, bf16* q, bf16* k, bf16* v) { cuda::rope_grad(q, k, v, x, shape, nullptr); });
  add("split heads",
      [=](bf16* x, bf16* q, bf16* k, bf16* v) { cuda::split_heads(x, q, k, v, heads, nullptr); });
  add("join heads",
      [=](bf16* x, bf16* q, bf16* k, bf16* v) { cuda::join_heads(q, k, v, x, heads, nullptr); });
}

template <class T>
void activations(Table& table, std::int64_t rows, std::int64_t width) {
  using C = cuda::Compute<T>;
  const char* type = name_of(dtype_of<T>());
  const std::int64_t n = rows * width, bytes = n * size<T>;
  const std::string shape = by(rows, width);
  table.add("gelu", shape, type, 2 * bytes, [=](Pool& p) {
    return [=, x = p.take<T>(n), y = p.take<T>(n)] { cuda::gelu(x, y, n, nullptr); };
  });
  table.add("gelu backward", shape, type, 3 * bytes, [=](Pool& p) {
    return [=, dy = p.take<T>(n), x = p.take<T>(n), dx = p.take<T>(n)] {
      cuda::gelu_grad(dy, x, dx, n, nullptr);
    };
  });
  table.add("bias + gelu", shape, type, 2 * bytes, [=](Pool& p) {
    return [=, x = p.take<T>(n), bias = p.take<T>(width), y = p.take<T>(n)] {
      cuda::bias_gelu(x, bias, y, rows, width, nullptr);
    };
  });
  table.add("bias + gelu backward, with dbias", shape, type, 3 * bytes, [=](Pool& p) {
    return [=, dy = p.take<T>(n), x = p.take<T>(n), bias = p.take<T>(width), dx = p.take<T>(n),
            dbias = p.take<C>(width), space = p.take<char>(cuda::bias_gelu_grad_workspace<T>(rows, width))] {
      cuda::bias_gelu_grad(dy, x, bias, dx, dbias, rows, width, space, nullptr);
    };
  });
  table.add("bias gradient", shape, type, bytes, [=](Pool& p) {
    return [=, dy = p.take<T>(n), dbias = p.take<C>(width),
            space = p.take<char>(cuda::bias_grad_workspace<T>(rows, width))] {
      cuda::bias_grad(dy, cuda::Sum(dbias), rows, width, space, nullptr);
    };
  });
  table.add("swiglu", shape, type, 3 * bytes, [=](Pool& p) {
    return [=, x = p.take<T>(2 * n), y = p.take<T>(n)] { cuda::swiglu(x, y, rows, width, nullptr); };
  });
  table.add("swiglu backward", shape, type, 5 * bytes, [=](Pool& p) {
    return [=, dy = p.take<T>(n), x = p.take<T>(2 * n), dx = p.take<T>(2 * n)] {
      cuda::swiglu_grad(dy, x, dx, rows, width, nullptr);
    };
  });
}

void embeddings(Table& table, std::int64_t batch, std::int64_t seq, std::int64_t width, std::int64_t vocab) {
  const std::int64_t count = batch * seq, n = count * width;
  const std::string shape = by(count, width) + ", vocab " + std::to_string(vocab);
  table.add("embedding + position", shape, "bf16", 4 * n + 2 * seq * width, [=](Pool& p) {
    return [=, ids = p.take(tokens(count, vocab, false)), rows = p.take<bf16>(vocab * width),
            positions = p.take<bf16>(seq * width), y = p.take<bf16>(n)] {
      cuda::embedding(ids, rows, positions, y, count, seq, width, vocab, 0, nullptr);
    };
  });
  for (bool text : {false, true}) {
    const std::vector<std::int32_t> drawn = tokens(count, vocab, text);
    std::vector<std::int32_t> distinct = drawn;
    std::sort(distinct.begin(), distinct.end());
    const std::int64_t rows = std::unique(distinct.begin(), distinct.end()) - distinct.begin();
    table.add(text ? "embedding gradient, as in text" : "embedding gradient, even", shape, "bf16",
              2 * n + 8 * rows * width, [=](Pool& p) {
                return [=, ids = p.take(drawn), dy = p.take<bf16>(n), dtable = p.take<float>(vocab * width),
                        space = p.take<char>(cuda::embedding_weight_grad_workspace<bf16>(count, width))] {
                  cuda::embedding_weight_grad(ids, dy, dtable, count, width, vocab, 0, -1, space, nullptr);
                };
              });
  }
  table.add("position gradient", shape, "bf16", 2 * n + 8 * seq * width, [=](Pool& p) {
    return [=, dy = p.take<bf16>(n), dpositions = p.take<float>(seq * width)] {
      cuda::position_weight_grad(dy, cuda::Sum(dpositions), nullptr, batch, seq, width, nullptr);
    };
  });
}

template <class T>
void dropout(Table& table, std::int64_t batch, std::int64_t seq, std::int64_t width) {
  const std::int64_t n = batch * seq * width;
  table.add("dropout", by(batch * seq, width), name_of(dtype_of<T>()), 2 * n * size<T>, [=](Pool& p) {
    return [=, x = p.take<T>(n), y = p.take<T>(n), seed = p.number(7),
            samples = p.take(std::vector<std::int64_t>(static_cast<std::size_t>(batch), 5))] {
      cuda::dropout(x, samples, seed, y, {batch, seq, width, 0, 0, 0.1, 3, 1}, nullptr);
    };
  });
}

template <class Types>
std::vector<cuda::AdamTensor<Types>> adam_tensors(Pool& p, int count, std::int64_t n) {
  using State = typename Types::State;
  std::vector<cuda::AdamTensor<Types>> all;
  for (int i = 0; i < count; ++i) {
    typename Types::Master* master = nullptr;
    if constexpr (Types::has_master) master = p.take<typename Types::Master>(n);
    all.push_back({p.take<typename Types::Parameter>(n), master, p.take<typename Types::Gradient>(n),
                   p.take<State>(n), p.take<State>(n), n, 0.1, 1, TensorElements{1, 0, n, 0, n, n, 0}});
  }
  return all;
}

template <class Types>
void adamw(Table& table, const char* what, int count, std::int64_t n, std::int64_t bytes) {
  const std::string shape = std::to_string(count) + " tensors of " + std::to_string(n);
  table.add("adamw", shape, what, bytes * count * n, [=](Pool& p) {
    const cuda::AdamSettings settings = {0.9,          0.95,        1e-8,        p.number(1e-3),
                                         p.number(10), p.number(1), p.number(1), p.number(1)};
    return [=, all = adam_tensors<Types>(p, count, n)] { cuda::adamw<Types>(all, settings, nullptr); };
  });
}

// Times `count` tensors of n elements, with bf16 parameters.
void optimizers(Table& table, int count, std::int64_t n) {
  using Whole = UpdateTypes<bf16, float, float, float>;
  const std::string shape = std::to_string(count) + " tensors of " + std::to_string(n);
  adamw<Whole>(table, "bf16, fp32 master and states", count, n, 30);
  adamw<UpdateTypes<bf16, std::uint16_t, float, float>>(table, "bf16, split master, fp32 states", count, n,
                                                        28);
  adamw<UpdateTypes<bf16, std::uint16_t, float, bf16>>(table, "bf16, split master, bf16 states", count, n,
                                                       20);
  adamw<UpdateTypes<bf16, void, float, bf16>>(table, "bf16, no master, bf16 states", count, n, 16);
  table.add("sgd with momentum", shape, "bf16, fp32 master and states", 22 * count * n, [=](Pool& p) {
    std::vector<cuda::SgdTensor<Whole>> all;
    for (const auto& t : adam_tensors<Whole>(p, count, n))
      all.push_back({t.parameter, t.master, t.gradient, t.m, n, 0.1, 1});
    const cuda::SgdSettings settings = {0.9, p.number(1e-3), p.number(1), p.number(1)};
    return [=] { cuda::sgd<Whole>(all, settings, nullptr); };
  });
  table.add("sum of squares", shape, "fp32", 4 * count * n, [=](Pool& p) {
    std::vector<cuda::Values<float>> all;
    for (int i = 0; i < count; ++i) all.push_back({p.take<float>(n), n});
    return [=, sum = p.number(0), space = p.take<char>(cuda::sum_squares_workspace())] {
      cuda::sum_squares<float>(all, sum, space, nullptr);
    };
  });
}

template <class T>
void heads(Table& table, std::int64_t rows, std::int64_t vocab) {
  using C = cuda::Compute<T>;
  const char* type = name_of(dtype_of<T>());
  const std::int64_t bytes = rows * vocab * size<T>;
  const auto logits = [=](Pool& p) {
    return cuda::Logits<T>{p.take<T>(rows * vocab), rows, vocab, vocab, p.take(tokens(rows, vocab, false))};
  };
  table.add("cross-entropy with gradient in place", by(rows, vocab), type, 2 * bytes, [=](Pool& p) {
    return [=, all = logits(p), scale = p.number(1e-3), loss = p.number(0), space = p.take<double>(rows)] {
      cuda::cross_entropy(all, scale, loss, space, nullptr);
    };
  });
  table.add("lm_head_scan", by(rows, vocab), type, bytes, [=](Pool& p) {
    return [=, all = logits(p), largest = p.take<C>(rows), sum = p.take<C>(rows), wanted = p.take<C>(rows)] {
      cuda::lm_head_scan(all, 0, vocab, largest, sum, wanted, nullptr);
    };
  });
  table.add("lm_head_grad", by(rows, vocab), type, 2 * bytes, [=](Pool& p) {
    return [=, all = logits(p), lse = p.take<C>(rows), scale = p.number(1e-3)] {
      cuda::lm_head_grad(all, 0, lse, scale, nullptr);
    };
  });
}

// Decays and shares are such that no state grows: keys here are longer than 1.
void delta_rule(Table& table, std::int64_t seq, std::int64_t heads, std::int64_t values) {
  const cuda::DeltaRuleSizes sizes{1, seq, heads, 128, values, 128, 64, SequenceRuns::whole(seq)};
  const std::int64_t keys = seq * heads * 128, all = keys * values, gates = seq * heads * values;
  const auto numbers = [=](Pool& p, float x) {
    return p.take(std::vector<float>(static_cast<std::size_t>(gates), x));
  };
  const std::string shape = by(seq, heads) + "×" + std::to_string(values) + " heads of 128";
  table.add("delta rule", shape, "bf16", 4 * (keys + all) + 8 * gates, [=](Pool& p) {
    const cuda::DeltaRuleForward<bf16> call{sizes,
                                            p.take<bf16>(keys),
                                            p.take<bf16>(keys),
                                            p.take<bf16>(all),
                                            numbers(p, -0.05f),
                                            numbers(p, 0.01f),
                                            p.take<bf16>(all),
                                            p.take<float>(heads * sizes.state().numbers()),
                                            p.take<char>(cuda::delta_rule_workspace<bf16>(sizes))};
    return [=] { cuda::delta_rule(call, nullptr); };
  });
  table.add("delta rule backward", shape, "bf16", 8 * keys + 6 * all + 16 * gates, [=](Pool& p) {
    const cuda::DeltaRuleBackward<bf16> call{sizes,
                                             p.take<bf16>(all),
                                             p.take<bf16>(keys),
                                             p.take<bf16>(keys),
                                             p.take<bf16>(all),
                                             numbers(p, -0.05f),
                                             numbers(p, 0.01f),
                                             p.take<bf16>(keys),
                                             p.take<bf16>(keys),
                                             p.take<bf16>(all),
                                             p.take<float>(gates),
                                             p.take<float>(gates),
                                             p.take<char>(cuda::delta_rule_backward_workspace<bf16>(sizes))};
    return [=] { cuda::delta_rule_backward(call, nullptr); };
  });
}

void short_convolution(Table& table, std::int64_t seq, std::int64_t channels) {
  cuda::ShortConvSizes sizes{1, seq, channels, 4, channels};
  sizes.dims = 1;
  sizes.own[0] = sizes.all[0] = channels;
  sizes.runs = SequenceRuns::whole(seq);
  const std::int64_t n = seq * channels, kept = 11;
  table.add("short convolution", by(seq, channels), "bf16", 4 * n, [=](Pool& p) {
    return [=, x = p.take<bf16>(n), weight = p.take<bf16>(4 * channels), y = p.take<bf16>(n),
            tail = p.take<bf16>(kept * channels)] {
      cuda::short_conv(sizes, x, weight, y, tail, kept, nullptr);
    };
  });
  table.add("short convolution, input gradient", by(seq, channels), "bf16", 6 * n, [=](Pool& p) {
    return [=, dy = p.take<bf16>(n), x = p.take<bf16>(n), weight = p.take<bf16>(4 * channels),
            dx = p.take<bf16>(n)] { cuda::short_conv_input_grad(sizes, dy, x, weight, dx, nullptr); };
  });
  table.add("short convolution, weight gradient", by(seq, channels), "bf16", 4 * n, [=](Pool& p) {
    return [=, dy = p.take<bf16>(n), x = p.take<bf16>(n), weight = p.take<bf16>(4 * channels),
            dweight = p.take<float>(4 * channels)] {
      cuda::short_conv_weight_grad(sizes, dy, x, weight, cuda::Sum(dweight), nullptr);
    };
  });
}

void time_all(const std::string& filter, Results& results) {
  Pool pool(12LL << 30);
  Table table(filter, pool, results);
  elementwise<bf16>(table, 1 << 28);
  elementwise<float>(table, 1 << 27);
  norms<bf16>(table, 65536, 768);
  norms<bf16>(table, 16384, 1600);
  norms<bf16>(table, 16384, 4096);
  norms<bf16>(table, 8192, 8192);
  norms<float>(table, 16384, 2048);
  rope(table, {4, 4096, 8, 6, 128});
  rope(table, {8, 1024, 4, 9, 128});
  activations<bf16>(table, 65536, 3072);
  activations<bf16>(table, 16384, 14336);
  activations<float>(table, 16384, 3072);
  embeddings(table, 64, 1024, 768, 50304);
  embeddings(table, 4, 4096, 4096, 128256);
  dropout<bf16>(table, 64, 1024, 768);
  dropout<bf16>(table, 4, 4096, 4096);
  dropout<float>(table, 64, 1024, 768);
  optimizers(table, 300, 1'000'000);
  heads<bf16>(table, 16384, 50304);
  heads<bf16>(table, 8192, 128256);
  heads<float>(table, 4096, 50304);
  delta_rule(table, 8192, 16, 2);
  short_convolution(table, 8192, 8192);
  table.finish();
}

}  // namespace

int main(int count, char** arguments) { return run("cuda_kernels", count, arguments, time_all); }
