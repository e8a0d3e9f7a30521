// Times the parts of a layer of experts on a GPU: its six products, beside the dense product of as many FLOPs
// with the best of cuBLASLt's algorithms that were tried, and the whole layer, forward and backward.
// Positions choose evenly, or the k-th expert about 1/k as often as the first.
//
//   build/bin/cuda_experts [PART OF A NAME [FILE FOR JSON]]
#include <array>
#include <map>
#include <numeric>

#include "experts/cuda.hpp"
#include "experts/cuda_grouped.hpp"
#include "linear/cuda.hpp"
#include "tools/bench/cuda_bench.hpp"

namespace {

using namespace prun;
using namespace prun::bench;

struct Model {
  std::string name;
  std::int64_t positions, hidden, ffn, experts, choices;

  std::int64_t rows() const { return positions * choices; }
};

const std::vector<Model> models = {
    {"Mixtral-8x7B", 8192, 4096, 14336, 8, 2},          {"Qwen3-30B-A3B", 8192, 2048, 768, 128, 8},
    {"DeepSeek-V2-Lite", 8192, 2048, 1408, 64, 6},      {"OLMoE-1B-7B", 8192, 2048, 1024, 64, 8},
    {"Mixtral-8x7B, 128 rows", 512, 4096, 14336, 8, 2}, {"Qwen3-30B-A3B, 128 rows", 2048, 2048, 768, 128, 8},
    {"OLMoE-1B-7B, 128 rows", 1024, 2048, 1024, 64, 8},
};

// Holds choices of each position, all different, and the rows in the order of experts.
struct Load {
  std::vector<std::int32_t> index, begin, position;

  Load(const Model& m, bool even) : begin(static_cast<std::size_t>(m.experts) + 1) {
    std::mt19937 generator(3);
    std::vector<double> weights(static_cast<std::size_t>(m.experts), 1);
    for (std::size_t e = 0; !even && e < weights.size(); ++e) weights[e] = 1 / static_cast<double>(e + 1);
    for (std::int64_t p = 0; p < m.positions; ++p) choose(weights, m.choices, generator);
    for (const std::int32_t e : index) ++begin[static_cast<std::size_t>(e) + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<std::int32_t> next = begin;
    position.resize(index.size());
    for (std::size_t c = 0; c < index.size(); ++c)
      position[static_cast<std::size_t>(next[static_cast<std::size_t>(index[c])]++)] =
          static_cast<std::int32_t>(c / static_cast<std::size_t>(m.choices));
  }
  // Returns the largest load as a multiple of the mean.
  double largest() const {
    std::int32_t most = 0;
    for (std::size_t e = 1; e < begin.size(); ++e) most = std::max(most, begin[e] - begin[e - 1]);
    return most * static_cast<double>(begin.size() - 1) / static_cast<double>(index.size());
  }

 private:
  void choose(std::vector<double> weights, std::int64_t choices, std::mt19937& generator) {
    for (std::int64_t c = 0; c < choices; ++c) {
      std::discrete_distribution<std::int32_t> draw(weights.begin(), weights.end());
      index.push_back(draw(generator));
      weights[static_cast<std::size_t>(index.back())] = 0;
    }
  }
};

class Bench {
 public:
  Bench(const std::string& filter, Results& results) : filter_(filter), results_(results), pool_(36LL << 30) {
    results_.add({cell("library", gemm_.version()), cell("path", gemm_.path())});
  }

  void model(const Model& m) {
    for (const bool even : {true, false}) {
      const std::string name = m.name + (even ? ", even" : ", uneven");
      if (name.find(filter_) == std::string::npos) continue;
      const Load load(m, even);
      results_.add({cell("choices", name), cell("rows an expert", m.rows() / m.experts, 0),
                    cell("of the most chosen, times the mean", load.largest(), 2)});
      products(name, m, load);
      whole(name, m, load);
    }
  }

 private:
  // The dense product's time is taken once: it is the same for both loads.
  double dense(const std::string& key, const cuda::Product& p, const cuda::GemmOperands& operands) {
    double& seconds = dense_[key];
    if (seconds > 0) return seconds;
    cuda::GemmPlan plan = gemm_.prepare(p);
    gemm_.tune(plan, operands, nullptr);
    return seconds = timer_([&] { gemm_.run(plan, operands, nullptr); });
  }

  // Holds seconds by form, in their order.
  using ByForm = std::array<double, 2>;
  template <class Launch>
  ByForm by_form(Launch launch) {
    ByForm seconds;
    for (std::size_t i = 0; i < seconds.size(); ++i)
      seconds[i] = timer_([&] { launch(static_cast<cuda::GroupedForm>(i)); });
    return seconds;
  }

  void row(const std::string& name, const char* which, const cuda::Product& p, const ByForm& seconds,
           double dense) {
    const double flops =
        2e-12 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    const double best = *std::min_element(seconds.begin(), seconds.end());
    results_.add({cell("experts", name), cell("product", which),
                  cell("FLOPs of m×n×k", by(p.m, p.n) + "×" + std::to_string(p.k)), cell("µs", best * 1e6, 1),
                  cell("dense, µs", dense * 1e6, 1), cell("by warps, TFLOP/s", flops / seconds[0], 0),
                  cell("by pairs", flops / seconds[1], 0), cell("dense, TFLOP/s", flops / dense, 0),
                  cell("best / dense", dense / best, 3)});
  }

  cuda::RowGroups groups(const Model& m, const Load& load) {
    return {pool_.take(load.begin), m.experts, m.rows()};
  }

  // Times products of rows [in] with weights: forward, and the gradient of its input.
  template <bool turned>
  void product(const std::string& name, const char* which, const Model& m, const Load& load, bool mapped,
               std::int64_t n, std::int64_t k) {
    pool_.reset();
    const cuda::RowGroups all = groups(m, load);
    const cuda::GroupedProduct call{
        {pool_.take<bf16>(m.rows() * k), mapped ? pool_.take(load.position) : nullptr},
        pool_.take<bf16>(m.experts * n * k),
        pool_.take<bf16>(m.rows() * n),
        n,
        k};
    const cuda::Product p = turned ? cuda::linear_input_grad_product<bf16>({m.rows(), n, k})
                                   : cuda::linear_product<bf16>({m.rows(), k, n});
    const ByForm seconds =
        by_form([&](cuda::GroupedForm form) { cuda::tensor_grouped<turned>(call, all, form, nullptr); });
    const double of_dense = dense(
        m.name + which, p,
        {call.from.data, call.weight, nullptr, nullptr, call.to, pool_.take<char>(cuda::gemm_workspace)});
    row(name, which, p, seconds, of_dense);
  }

  void sums(const std::string& name, const char* which, const Model& m, const Load& load, bool left_mapped,
            std::int64_t out, std::int64_t in, bool begins) {
    pool_.reset();
    const cuda::RowGroups all = groups(m, load);
    const std::int32_t* const map = pool_.take(load.position);
    const cuda::GroupedSums<bf16> call{{pool_.take<bf16>(m.rows() * out), left_mapped ? map : nullptr},
                                       pool_.take<bf16>(m.rows() * in),
                                       {pool_.take<bf16>(m.experts * out * in), begins},
                                       out,
                                       in};
    const cuda::Product p = cuda::linear_weight_grad_product<bf16, bf16>({m.rows(), in, out});
    const ByForm seconds =
        by_form([&](cuda::GroupedForm form) { cuda::tensor_grouped(call, all, form, nullptr); });
    const double of_dense =
        dense(m.name + which, p,
              cuda::linear_weight_grad_operands(call.right, call.left.data, call.sum.data, begins,
                                                pool_.take<char>(cuda::gemm_workspace)));
    row(name, which, p, seconds, of_dense);
  }

  void products(const std::string& name, const Model& m, const Load& load) {
    const std::int64_t up = 2 * m.ffn, h = m.hidden, f = m.ffn;
    product<false>(name, "up", m, load, true, up, h);
    product<false>(name, "down", m, load, false, h, f);
    product<true>(name, "down, input gradient", m, load, true, f, h);
    product<true>(name, "up, input gradient", m, load, false, h, up);
    for (const bool begins : {true, false}) {
      sums(name, begins ? "up, weight gradient, written" : "up, weight gradient, added", m, load, false, up,
           h, begins);
      sums(name, begins ? "down, weight gradient, written" : "down, weight gradient, added", m, load, true, h,
           f, begins);
    }
  }

  void whole(const std::string& name, const Model& m, const Load& load) {
    pool_.reset();
    const cuda::ExpertsShape shape{m.positions, m.choices, m.experts, 0, m.hidden, m.ffn};
    const std::int64_t width = m.positions * m.hidden, weights = m.experts * m.hidden * m.ffn;
    cuda::ExpertsInputs<bf16> in{pool_.take<bf16>(width), pool_.take(load.index), pool_.take<float>(m.rows()),
                                 pool_.take<bf16>(2 * weights), pool_.take<bf16>(weights)};
    bf16 *y = pool_.take<bf16>(width), *dy = pool_.take<bf16>(width);
    const cuda::ExpertsGradients<bf16, bf16> out{pool_.take<bf16>(width),
                                                 pool_.take<float>(m.rows()),
                                                 {pool_.take<bf16>(2 * weights), false},
                                                 {pool_.take<bf16>(weights), false}};
    void* const room = pool_.take<char>(cuda::experts_workspace(shape, 2, true, false));
    const double product = 6e-12 * static_cast<double>(m.rows()) * static_cast<double>(m.hidden * m.ffn);
    const auto add = [&](const char* what, double flops, double seconds) {
      results_.add({cell("experts, all of it", name), cell("what", what), cell("µs", seconds * 1e6, 1),
                    cell("TFLOP/s", flops / seconds, 0)});
    };
    add("forward", product, timer_([&] { cuda::experts<bf16>(in, y, shape, room, nullptr); }));
    const auto backward = [&] { cuda::experts_grads<bf16, bf16>(in, dy, out, shape, room, nullptr); };
    // Backward computes the product `up` once more, and two gradients of each product.
    add("backward", product * 8 / 3, timer_(backward));
    in.kept = pool_.take<bf16>(2 * m.rows() * m.ffn);
    add("forward, keeping", product, timer_([&] { cuda::experts<bf16>(in, y, shape, room, nullptr); }));
    add("backward, of what was kept", product * 2, timer_(backward));
  }

  std::string filter_;
  Results& results_;
  Pool pool_;
  Timer timer_;
  cuda::Gemm gemm_;
  std::map<std::string, double> dense_;
};

}  // namespace

int main(int count, char** arguments) {
  return run("cuda_experts", count, arguments, [](const std::string& filter, Results& results) {
    Bench bench(filter, results);
    for (const Model& m : models) bench.model(m);
  });
}
