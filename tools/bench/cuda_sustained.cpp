// Measures what a GPU does while it computes without rest, at its power limit: the products of a layer, one
// after the other for some seconds, each beside the peak at the clock that there is then; and an optimizer's
// update beside a forward pass' products, on a stream of its own, against both one after the other.
//
//   build/bin/cuda_sustained [PART OF A NAME [FILE FOR JSON]]
#include <chrono>
#include <memory>

#include "linear/cuda.hpp"
#include "plugins/device/cuda/power_meter.hpp"
#include "tools/bench/cuda_bench.hpp"
#include "tools/bench/cuda_models.hpp"
#include "tools/bench/limited_update.hpp"

namespace {

using namespace prun;
using namespace prun::bench;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds settling{1000}, measured{2500};

double peak_at(double megahertz) {
  int units = 0;
  check(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, 0));
  constexpr double flops_a_clock = 4096;  // those of a Hopper multiprocessor in bf16, dense
  return flops_a_clock * units * megahertz * 1e6;
}

class Stream {
 public:
  explicit Stream(bool low) {
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, low ? least : greatest));
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Is a row of marks on a stream, with the time between them.
class Marks {
 public:
  explicit Marks(std::size_t count) : events_(count) {
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event));
  }
  ~Marks() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  void set(std::size_t at, cudaStream_t stream) { check(cudaEventRecord(events_[at], stream)); }
  void await(std::size_t at, cudaStream_t stream) { check(cudaStreamWaitEvent(stream, events_[at])); }
  void finish() { check(cudaEventSynchronize(events_.back())); }
  double seconds(std::size_t from, std::size_t to) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_[from], events_[to]));
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  std::vector<cudaEvent_t> events_;
};

struct TimedProduct {
  std::string name, which;
  cuda::GemmPlan plan;
  cuda::GemmOperands operands;
  double seconds = 0;

  double flops() const {
    const cuda::Product& p = plan.product();
    return 2 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  }
};

class Bench {
 public:
  Bench(const std::string& filter, Results& results) : filter_(filter), results_(results), pool_(24LL << 30) {
    results_.add({cell("library", gemm_.version()), cell("path", gemm_.path())});
  }

  void model(const Model& m) {
    if (m.name.find(filter_) == std::string::npos) return;
    for (const int candidates : {16, 64}) {
      pool_.reset();
      std::vector<TimedProduct> all = products(m);
      for (TimedProduct& product : all) gemm_.tune(product.plan, product.operands, compute_, candidates);
      run_for_long(all);
      report(m, candidates, all);
      if (candidates == 16) update_beside(m, all);
    }
  }

 private:
  // Makes products none of which reads what another one writes: numbers that grow from one to the next end as
  // NaN, which takes little power.
  std::vector<TimedProduct> products(const Model& m) {
    std::vector<TimedProduct> all;
    void* const space = pool_.take<char>(cuda::gemm_workspace);
    for (const Layer& layer : m.layers) {
      const cuda::LinearShape s{m.rows, layer.in, layer.out};
      bf16 *x = pool_.take<bf16>(s.rows * s.in), *dx = pool_.take<bf16>(s.rows * s.in),
           *y = pool_.take<bf16>(s.rows * s.out), *dy = pool_.take<bf16>(s.rows * s.out),
           *weight = pool_.take<bf16>(s.out * s.in);
      auto* dweight = pool_.take<float>(s.out * s.in);
      const auto add = [&](const char* which, const cuda::Product& product, const cuda::GemmOperands& on) {
        all.push_back({layer.name, which, gemm_.prepare(product), on});
      };
      add("forward", cuda::linear_product<bf16>(s),
          cuda::linear_operands<bf16>(x, weight, nullptr, nullptr, y, space));
      add("input gradient", cuda::linear_input_grad_product<bf16>(s),
          cuda::linear_input_grad_operands(dy, weight, dx, space));
      add("weight gradient", cuda::linear_weight_grad_product<bf16>(s),
          cuda::linear_weight_grad_operands(x, dy, dweight, true, space));
    }
    return all;
  }

  // Runs all again and again, and takes each one's mean time once the clock has settled.
  void run_for_long(std::vector<TimedProduct>& all) {
    Marks marks(all.size() + 1);
    const auto begin = Clock::now();
    int rounds = 0;
    while (Clock::now() < begin + settling + measured) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        marks.set(i, compute_);
        gemm_.run(all[i].plan, all[i].operands, compute_);
      }
      marks.set(all.size(), compute_);
      marks.finish();
      if (Clock::now() < begin + settling) continue;
      ++rounds;
      for (std::size_t i = 0; i < all.size(); ++i) all[i].seconds += marks.seconds(i, i + 1);
    }
    for (TimedProduct& product : all) product.seconds /= rounds;
  }

  void report(const Model& m, int candidates, const std::vector<TimedProduct>& all) {
    const DeviceMeter meter = power_.read(1);
    const double peak = peak_at(meter.clock_mhz);
    double seconds = 0, flops = 0;
    for (const TimedProduct& product : all) seconds += product.seconds, flops += product.flops();
    const auto row = [&](const std::string& name, const std::string& which, double time, double work) {
      results_.add({cell("model", m.name), cell("algorithms tried", candidates, 0), cell("product", name),
                    cell("which", which), cell("µs", 1e6 * time, 1), cell("TFLOP/s", 1e-12 * work / time, 0),
                    cell("% of the peak at this clock", 100 * work / time / peak, 1),
                    cell("% of the time", 100 * time / seconds, 1)});
    };
    for (const TimedProduct& product : all)
      row(product.name, product.which, product.seconds, product.flops());
    row("all", detail::concat(meter.clock_mhz, " MHz, ", meter.watts, " W"), seconds, flops);
  }

  // Updates as many parameters as a layer has while a forward pass of some layers goes on.
  void update_beside(const Model& m, const std::vector<TimedProduct>& all) {
    constexpr int layers = 16;
    const UpdatedTensor tensor = parameters_of(m);
    const auto forward = [&] {
      for (int layer = 0; layer < layers; ++layer)
        for (std::size_t i = 0; i < all.size(); i += 3) gemm_.run(all[i].plan, all[i].operands, compute_);
    };
    const auto updates = [&](int blocks, cudaStream_t stream) {
      for (int layer = 0; layer < layers; ++layer) update_by(blocks, tensor, stream);
    };
    const double products = both([&](cudaStream_t) { forward(); }, compute_);
    for (const int blocks : {33, 66, 132, 4096}) {
      const auto together = [&](cudaStream_t stream) { forward(), updates(blocks, stream); };
      const double alone = both([&](cudaStream_t stream) { updates(blocks, stream); }, compute_);
      results_.add(
          {cell("an update beside", m.name), cell("blocks", blocks, 0),
           cell("GB/s alone",
                1e-9 * static_cast<double>(layers * tensor.elements * UpdatedTensor::bytes_per_element) /
                    alone,
                0),
           cell("products, ms", 1e3 * products, 2), cell("update, ms", 1e3 * alone, 2),
           cell("one after the other, ms", 1e3 * both(together, compute_), 2),
           cell("beside, ms", 1e3 * both(together, beside_), 2),
           cell("beside at low priority, ms", 1e3 * both(together, low_), 2)});
    }
  }

  UpdatedTensor parameters_of(const Model& m) {
    std::int64_t elements = 0;
    for (const Layer& layer : m.layers) elements += layer.in * layer.out;
    return {pool_.take<float>(elements),
            pool_.take<float>(elements),
            pool_.take<float>(elements),
            pool_.take<float>(elements),
            reinterpret_cast<__nv_bfloat16*>(pool_.take<bf16>(elements)),
            elements};
  }

  // Returns the mean seconds of a work that may have launches on another stream as well.
  template <class Launch>
  double both(const Launch& launch, cudaStream_t other) {
    Marks marks(3);
    const auto begin = Clock::now();
    double sum = 0;
    int count = 0;
    while (count < 3 || Clock::now() < begin + settling) {
      marks.set(0, compute_);
      marks.await(0, other);
      launch(other);
      marks.set(1, other);
      marks.await(1, compute_);
      marks.set(2, compute_);
      marks.finish();
      if (Clock::now() < begin + settling / 2) continue;
      sum += marks.seconds(0, 2);
      ++count;
    }
    return sum / count;
  }

  std::string filter_;
  Results& results_;
  cuda::Gemm gemm_;
  Pool pool_;
  Stream compute_{false}, beside_{false}, low_{true};
  cuda::PowerMeter power_{0};
};

void time_all(const std::string& filter, Results& results) {
  Bench bench(filter, results);
  for (const Model& model : gpu_models()) bench.model(model);
}

}  // namespace

int main(int count, char** arguments) { return run("cuda_sustained", count, arguments, time_all); }
