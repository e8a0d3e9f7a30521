#include "power_meter.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <optional>

namespace prun::cuda {
namespace {

constexpr std::chrono::milliseconds between_samples{500};  // reading takes some milliseconds
constexpr std::size_t samples_a_second = 3;                // two intervals

// Loads the few functions of NVML (libnvidia-ml, part of the driver) that are needed. All return 0 when they
// succeed.
class Nvml {
 public:
  // Returns null where the library, one of the functions or the GPU is not found.
  static std::unique_ptr<Nvml> open(int ordinal) {
    char address[32] = {};
    if (cudaDeviceGetPCIBusId(address, sizeof address, ordinal) != cudaSuccess) return nullptr;
    std::unique_ptr<Nvml> nvml(new Nvml);
    return nvml->start(address) ? std::move(nvml) : nullptr;
  }
  ~Nvml() {
    if (started_) shutdown_();
    if (library_) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::optional<PowerSample> sample() const {
    constexpr int streaming_multiprocessors = 1;  // NVML_CLOCK_SM
    unsigned long long millijoules = 0;
    unsigned megahertz = 0;
    if (energy_(device_, &millijoules) != 0 || clock_(device_, streaming_multiprocessors, &megahertz) != 0)
      return std::nullopt;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return PowerSample{std::chrono::duration<double>(now).count(), 1e-3 * static_cast<double>(millijoules),
                       static_cast<double>(megahertz)};
  }

 private:
  Nvml() = default;

  bool start(const char* address) {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library_ || !look_up("nvmlInit_v2", init_) || !look_up("nvmlShutdown", shutdown_) ||
        !look_up("nvmlDeviceGetHandleByPciBusId_v2", by_address_) ||
        !look_up("nvmlDeviceGetTotalEnergyConsumption", energy_) ||
        !look_up("nvmlDeviceGetClockInfo", clock_))
      return false;
    started_ = init_() == 0;
    return started_ && by_address_(address, &device_) == 0;
  }

  template <class Function>
  bool look_up(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }

  void* library_ = nullptr;
  bool started_ = false;
  void* device_ = nullptr;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*by_address_)(const char*, void**) = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
};

}  // namespace

PowerMeter::PowerMeter(int ordinal)
    : thread_([this, ordinal](std::stop_token stop) { sample(std::move(stop), ordinal); }) {}

DeviceMeter PowerMeter::read(int sharers) const {
  const std::scoped_lock lock(mutex_);
  return {now_.watts / sharers, now_.clock_mhz};
}

// A sample that fails ends the sampling: the last reading is not what is drawn now.
void PowerMeter::sample(std::stop_token stop, int ordinal) {
  pthread_setname_np(pthread_self(), "prun-power");
  const std::unique_ptr<Nvml> nvml = Nvml::open(ordinal);
  MeterWindow window(samples_a_second);
  std::mutex mutex;
  std::condition_variable_any sleeping;
  std::unique_lock waiting(mutex);
  while (nvml && !stop.stop_requested()) {
    const std::optional<PowerSample> sample = nvml->sample();
    if (sample) window.add(*sample);
    {
      const std::scoped_lock lock(mutex_);
      now_ = sample ? window.means() : DeviceMeter{};
    }
    if (!sample) return;
    sleeping.wait_for(waiting, stop, between_samples, [] { return false; });
  }
}

}  // namespace prun::cuda
