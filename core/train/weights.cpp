#include "train/weights.hpp"

#include <algorithm>
#include <thread>

#include "base/random.hpp"
#include "base/thread.hpp"
#include "execute/tensors.hpp"
#include "prun/split_master.hpp"

namespace prun {
namespace {

// Numbers are drawn in fp32 whatever the precision, so that fp64, fp32 and bf16 runs start alike. In bf16
// they are rounded as updates round a master copy.
void store(std::byte* target, DType type, std::span<const float> numbers) {
  const auto put = [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for (std::size_t i = 0; i < numbers.size(); ++i) data[i] = T(numbers[i]);
  };
  const auto put_half = [&](auto half) {
    auto* data = reinterpret_cast<std::uint16_t*>(target);
    for (std::size_t i = 0; i < numbers.size(); ++i) data[i] = half(numbers[i]);
  };
  if (type == DType::f64)
    put(reinterpret_cast<double*>(target));
  else if (type == DType::f32)
    put(reinterpret_cast<float*>(target));
  else
    put_half(type == DType::u16 ? low_half : rounded_half);
}

struct Filling {
  HeldRun run;
  Init init;
  std::uint64_t stream;
};

void fill(const Filling& f, std::uint64_t seed, const PlanMemory& memory) {
  std::vector<float> numbers(static_cast<std::size_t>(f.run.count), static_cast<float>(f.init.value));
  if (f.init.kind == Init::Kind::normal)
    RandomStream(seed, f.stream)
        .fill_normal(numbers, static_cast<std::uint64_t>(f.run.whole), 0.0, f.init.value);
  std::vector<std::byte> bytes(static_cast<std::size_t>(f.run.count * size_of(f.run.type)));
  store(bytes.data(), f.run.type, numbers);
  memory.write(f.run.value, f.run.instance, f.run.offset, bytes);
}

// Only what this rank holds is ever made.
std::vector<Filling> fillings(const Assembly& assembly) {
  constexpr std::int64_t chunk = 1 << 16;
  std::vector<Filling> list;
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    const Init init = assembly.program().value(id).init;
    const std::uint64_t stream = stream_id(assembly.full_name(id, instance));
    for (Kept kept : {Kept::parameter, Kept::master})
      each_held(assembly, id, instance, kept, [&](const HeldRun& run) {
        for (std::int64_t at = 0; at < run.count; at += chunk) {
          HeldRun part = run;
          part.offset += at * size_of(run.type);
          part.whole += at;
          part.count = std::min(chunk, run.count - at);
          list.push_back({part, init, stream});
        }
      });
  });
  return list;
}

}  // namespace

void initialize(const Assembly& assembly, const PlanMemory& memory) {
  const std::vector<Filling> list = fillings(assembly);
  const auto seed = static_cast<std::uint64_t>(assembly.recipe().integer("run.seed"));
  // Where the device does not compute on this machine's cores, all of them are idle.
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const DeviceInfo& device = assembly.device_info();
  const auto threads = static_cast<std::size_t>(std::max(1, device.host_memory ? device.threads : cores));
  std::vector<std::jthread> workers;
  for (std::size_t t = 0; t < threads; ++t)
    workers.push_back(start_thread<std::jthread>("initial values", [&, t] {
      for (std::size_t i = t; i < list.size(); i += threads) fill(list[i], seed, memory);
    }));
}

}  // namespace prun
