// Times the matrix products of training steps on a GPU, with the algorithm that cuBLASLt's heuristic names
// first and with the best of those tried, and whole LM heads: time, TFLOP/s, and their share of what the best
// large product reaches on an H200. A product of 8192³ at the beginning and at the end says how fast the
// device was.
//
//   build/bin/cuda_gemm [PART OF A NAME [FILE FOR JSON]]
#include "activation/cuda.hpp"
#include "bias/cuda.hpp"
#include "elementwise/cuda.hpp"
#include "linear/cuda.hpp"
#include "lm_head/cuda_rows.hpp"
#include "tools/bench/cuda_bench.hpp"
#include "tools/bench/cuda_models.hpp"

namespace {

using namespace prun;
using namespace prun::bench;

constexpr double best_rate = 790e12;  // is FLOP/s in bf16, random data

class Bench {
 public:
  Bench(const std::string& filter, Results& results) : filter_(filter), results_(results), pool_(12LL << 30) {
    results_.add({cell("library", gemm_.version()), cell("path", gemm_.path())});
  }

  void calibrate(const char* when) {
    constexpr std::int64_t n = 8192;
    pool_.reset();
    cuda::GemmPlan plan = gemm_.prepare(cuda::linear_product<bf16>({n, n, n}));
    bf16 *x = pool_.take<bf16>(n * n), *weight = pool_.take<bf16>(n * n), *y = pool_.take<bf16>(n * n);
    product(std::string("calibration, ") + when, "forward", plan,
            cuda::linear_operands<bf16>(x, weight, nullptr, nullptr, y, workspace()));
  }

  void model(const Model& m) {
    for (const Layer& layer : m.layers) linear(m.name + ' ' + layer.name, {m.rows, layer.in, layer.out});
    head(m);
  }

  void epilogues(const Model& m) {
    for (const Layer& layer : m.layers)
      if (layer.name == std::string("up")) fusions(m.name + " up", {m.rows, layer.in, layer.out});
  }

 private:
  void* workspace() { return pool_.take<char>(cuda::gemm_workspace); }
  bool wanted(const std::string& name) const { return name.find(filter_) != std::string::npos; }

  void product(const std::string& name, const char* which, cuda::GemmPlan& plan,
               const cuda::GemmOperands& operands) {
    const auto run = [&] { gemm_.run(plan, operands, nullptr); };
    const double first = timer_(run);
    const cuda::Tuning tuning = gemm_.tune(plan, operands, nullptr);
    const double best = timer_(run);
    const cuda::Product& p = plan.product();
    const double flops = 2e-12 * static_cast<double>(p.m) * static_cast<double>(p.n * p.k);
    results_.add(
        {cell("product", name), cell("which", which), cell("m×n×k", by(p.m, p.n) + "×" + std::to_string(p.k)),
         cell("tried", tuning.candidates, 0), cell("first, µs", first * 1e6, 1),
         cell("tuned, µs", best * 1e6, 1), cell("first, TFLOP/s", flops / first, 0),
         cell("tuned, TFLOP/s", flops / best, 0), cell("% of 790", 1e14 * flops / best / best_rate, 1)});
  }

  void linear(const std::string& name, const cuda::LinearShape& s) {
    if (!wanted(name)) return;
    pool_.reset();
    bf16 *x = pool_.take<bf16>(s.rows * s.in), *y = pool_.take<bf16>(s.rows * s.out),
         *weight = pool_.take<bf16>(s.out * s.in), *bias = pool_.take<bf16>(s.out),
         *residual = pool_.take<bf16>(s.rows * s.out);
    float* dweight = pool_.take<float>(s.out * s.in);
    void* space = workspace();
    cuda::LinearShape biased = s;
    biased.bias = true;
    cuda::GemmPlan forward = gemm_.prepare(cuda::linear_product<bf16>(s)),
                   with_bias = gemm_.prepare(cuda::linear_product<bf16>(biased)),
                   onto = gemm_.prepare(cuda::linear_product<bf16>(s)),
                   input_grad = gemm_.prepare(cuda::linear_input_grad_product<bf16>(s)),
                   weight_grad = gemm_.prepare(cuda::linear_weight_grad_product<bf16>(s)),
                   weight_grad_added = gemm_.prepare(cuda::linear_weight_grad_product<bf16>(s));
    product(name, "forward", forward, cuda::linear_operands<bf16>(x, weight, nullptr, nullptr, y, space));
    product(name, "with bias", with_bias, cuda::linear_operands<bf16>(x, weight, bias, nullptr, y, space));
    product(name, "onto a residual", onto,
            cuda::linear_operands<bf16>(x, weight, nullptr, residual, y, space));
    product(name, "input gradient", input_grad, cuda::linear_input_grad_operands(residual, weight, x, space));
    product(name, "weight gradient, written", weight_grad,
            cuda::linear_weight_grad_operands(x, residual, dweight, true, space));
    product(name, "weight gradient, added", weight_grad_added,
            cuda::linear_weight_grad_operands(x, residual, dweight, false, space));
  }

  // Returns the seconds of a product with the best algorithm there is; 0 where there is none.
  double tuned(const cuda::Product& p, const cuda::GemmOperands& operands) {
    try {
      cuda::GemmPlan plan = gemm_.prepare(p);
      gemm_.tune(plan, operands, nullptr);
      return timer_([&] { gemm_.run(plan, operands, nullptr); });
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      return 0;
    }
  }

  void compare(const std::string& name, const char* fusion, double product, double other, double together) {
    results_.add({cell("with the product", name), cell("what", fusion), cell("product, µs", product * 1e6, 1),
                  cell("kernel, µs", other * 1e6, 1), cell("in one, µs", together * 1e6, 1),
                  cell("saved, µs", together > 0 ? (product + other - together) * 1e6 : 0, 1)});
  }

  // Times the first matrix of an MLP, whose result goes through gelu.
  void fusions(const std::string& name, const cuda::LinearShape& s) {
    if (!wanted(name)) return;
    pool_.reset();
    const std::int64_t wide = s.rows * s.out;
    bf16 *x = pool_.take<bf16>(s.rows * s.in), *weight = pool_.take<bf16>(s.out * s.in),
         *bias = pool_.take<bf16>(s.out), *y = pool_.take<bf16>(wide), *z = pool_.take<bf16>(wide),
         *dy = pool_.take<bf16>(wide);
    float *dweight = pool_.take<float>(s.out * s.in), *dbias = pool_.take<float>(s.out);
    void *products = workspace(),
         *sums = pool_.take<char>(cuda::bias_gelu_grad_workspace<bf16>(s.rows, s.out));
    const auto with = [](cuda::Product p, cuda::Epilogue epilogue) {
      p.epilogue = epilogue;
      return p;
    };
    const cuda::Product forward = cuda::linear_product<bf16>(s),
                        next = cuda::linear_input_grad_product<bf16>({s.rows, s.out, s.in}),
                        last = cuda::linear_weight_grad_product<bf16>(s);
    cuda::GemmOperands o = {x, weight, nullptr, nullptr, y, products};
    const double alone = tuned(forward, o);
    compare(name, "bias and gelu", alone,
            timer_([&] { cuda::bias_gelu(y, bias, z, s.rows, s.out, nullptr); }),
            tuned(with(forward, cuda::Epilogue::bias_gelu), {x, weight, nullptr, bias, z, products, y}));
    compare(name, "a residual", alone, timer_([&] { cuda::add(y, dy, y, wide, nullptr); }),
            tuned(forward, {x, weight, dy, nullptr, y, products}));
    o = {x, weight, nullptr, nullptr, dy, products};
    compare(name, "gelu's gradient (without that of the bias)", tuned(next, o),
            timer_([&] { cuda::gelu_grad(dy, y, dy, wide, nullptr); }),
            tuned(with(next, cuda::Epilogue::gelu_grad), {x, weight, nullptr, nullptr, dy, products, y}));
    o = {dy, x, nullptr, nullptr, dweight, products};
    compare(
        name, "gradient of the bias", tuned(last, o),
        timer_([&] { cuda::bias_grad(dy, cuda::Sum(dbias), s.rows, s.out, sums, nullptr); }),
        tuned(with(last, cuda::Epilogue::bias_grad), {dy, x, nullptr, nullptr, dweight, products, dbias}));
  }

  void head(const Model& m) {
    const std::string name = m.name + " lm_head";
    if (!wanted(name)) return;
    for (const std::int64_t most_bytes : {cuda::most_logit_bytes, 2 * cuda::most_logit_bytes}) {
      pool_.reset();
      const cuda::HeadShape shape = {
          .rows = m.rows, .width = m.width, .vocab = m.vocab, .most_bytes = most_bytes};
      bf16 *x = pool_.take<bf16>(m.rows * m.width), *weight = pool_.take<bf16>(m.vocab * m.width),
           *dx = pool_.take<bf16>(m.rows * m.width);
      // Logits have about the size that they have when training starts; larger ones leave gradients of zeros,
      // which multiply faster.
      cuda::scale(weight, weight, 1.7 / std::sqrt(static_cast<double>(m.width)), m.vocab * m.width, nullptr);
      const cuda::HeadInput<bf16> input = {x, weight, pool_.take(tokens(m.rows, m.vocab, false))};
      const cuda::HeadGradients<bf16> gradients = {pool_.number(1.0 / static_cast<double>(m.rows)),
                                                   pool_.take<float>(m.vocab * m.width), true, dx};
      double* loss = pool_.number(0);
      void* space = pool_.take<char>(cuda::lm_head_workspace<bf16>(shape));
      cuda::LogitRows<bf16> head(gemm_, shape);
      const auto run = [&] { head.lm_head(input, gradients, loss, space, nullptr); };
      const double first = timer_(run);
      const char* const which[] = {"logits",       "input gradient",       "weight gradient",
                                   "logits, last", "input gradient, last", "weight gradient, last"};
      const std::vector<cuda::HeadProduct> products = head.products(input, gradients, space);
      for (std::size_t i = 0; i < products.size(); ++i)
        product(name, which[i], *products[i].plan, products[i].operands);
      whole(name, m, shape, first, timer_(run));
    }
  }

  void whole(const std::string& name, const Model& m, const cuda::HeadShape& shape, double first,
             double best) {
    const double flops =
        6e-12 * static_cast<double>(m.rows) * static_cast<double>(m.vocab) * static_cast<double>(m.width);
    results_.add(
        {cell("whole op", name),
         cell("rows×vocab×width", by(m.rows, m.vocab) + "×" + std::to_string(m.width)),
         cell("MiB of logits", static_cast<double>(shape.most_bytes >> 20), 0),
         cell("MiB of workspace", static_cast<double>(cuda::lm_head_workspace<bf16>(shape) >> 20), 0),
         cell("first, ms", first * 1e3, 2), cell("tuned, ms", best * 1e3, 2),
         cell("tuned, TFLOP/s", flops / best, 0), cell("% of 790", 1e14 * flops / best / best_rate, 1)});
  }

  std::string filter_;
  Results& results_;
  cuda::Gemm gemm_;
  Pool pool_;
  Timer timer_;
};

void time_all(const std::string& filter, Results& results) {
  Bench bench(filter, results);
  bench.calibrate("before");
  for (const Model& model : gpu_models()) bench.model(model);
  for (const Model& model : gpu_models()) bench.epilogues(model);
  bench.calibrate("after");
}

}  // namespace

int main(int count, char** arguments) { return run("cuda_gemm", count, arguments, time_all); }
