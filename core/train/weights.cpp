#include "train/weights.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#include "base/random.hpp"
#include "base/thread.hpp"
#include "execute/device_memory.hpp"
#include "execute/tensors.hpp"
#include "prun/split_master.hpp"

namespace prun {
namespace {

// Elements of a parameter, and where this rank holds them: in the parameter, in its master copy, or in both.
struct Filling {
  Init init;
  std::uint64_t stream = 0;
  std::int64_t whole = 0, count = 0;
  std::vector<HeldRun> places;
};

// Only what this rank holds is ever made, and that once: runs are cut where multiples of `most` elements lie
// in the whole parameter, so that the pieces of both are the same ones.
std::vector<Filling> fillings(const Assembly& assembly, std::int64_t most) {
  std::vector<Filling> list;
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<HeldRun>> pieces;
    for (Kept kept : {Kept::parameter, Kept::master})
      each_held(assembly, id, instance, kept, [&](const HeldRun& run) {
        for (std::int64_t at = 0; at < run.count;) {
          HeldRun part = run;
          part.offset += at * size_of(run.type);
          part.whole += at;
          part.count = std::min(most - part.whole % most, run.count - at);
          pieces[{part.whole, part.count}].push_back(part);
          at += part.count;
        }
      });
    const std::uint64_t stream = stream_id(assembly.full_name(id, instance));
    for (auto& [elements, places] : pieces)
      list.push_back(
          {assembly.program().value(id).init, stream, elements.first, elements.second, std::move(places)});
  });
  return list;
}

template <class T, class Convert>
void convert(std::span<const float> numbers, void* to, const Convert& converted) {
  auto* const data = static_cast<T*>(to);
  for (std::size_t i = 0; i < numbers.size(); ++i) data[i] = converted(numbers[i]);
}

// What a thread has to fill parameters with: draws, converts and copies one piece at a time.
class Filler {
 public:
  // For pieces of that many elements, and that many bytes of what they are converted to.
  Filler(DeviceInterface& device, std::int64_t elements, std::int64_t converted_bytes)
      : numbers_(device, elements * size_of(DType::f32)), converted_(device, converted_bytes) {}

  void fill(const Filling& f, std::uint64_t seed, const PlanMemory& memory) {
    const std::span<float> numbers(reinterpret_cast<float*>(numbers_.data()),
                                   static_cast<std::size_t>(f.count));
    if (f.init.kind == Init::Kind::normal)
      RandomStream(seed, f.stream)
          .fill_normal(numbers, static_cast<std::uint64_t>(f.whole), 0.0, f.init.value);
    else
      std::fill(numbers.begin(), numbers.end(), static_cast<float>(f.init.value));
    for (const HeldRun& run : f.places)
      memory.write(run.value, run.instance, run.offset, as(run.type, numbers));
  }

 private:
  // Numbers are drawn in fp32 whatever the precision, so that fp64, fp32 and bf16 runs start alike. In bf16
  // they are rounded as updates round a master copy.
  std::span<const std::byte> as(DType type, std::span<const float> numbers) {
    void* const to = converted_.data();
    switch (type) {
      case DType::f32: return std::as_bytes(numbers);
      case DType::f64: convert<double>(numbers, to, [](float x) { return double{x}; }); break;
      case DType::u16: convert<std::uint16_t>(numbers, to, [](float x) { return low_half(x); }); break;
      default: convert<std::uint16_t>(numbers, to, [](float x) { return rounded_half(x); });
    }
    return {static_cast<const std::byte*>(to), numbers.size() * static_cast<std::size_t>(size_of(type))};
  }

  Pinned numbers_, converted_;
};

}  // namespace

std::size_t host_threads(const DeviceInfo& device, std::int64_t world) {
  if (device.host_memory) return static_cast<std::size_t>(std::max(1, device.threads));
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const std::int64_t ranks = std::clamp<std::int64_t>(world, 1, std::max(1, device.units));
  return static_cast<std::size_t>(std::max<std::int64_t>(1, cores / ranks));
}

void initialize(const Assembly& assembly, const PlanMemory& memory) {
  // A piece stays in a core's cache; for a copy to a device it is long enough to be worth its start.
  const DeviceInfo& info = assembly.device_info();
  const std::int64_t most = info.host_memory ? 1 << 16 : 1 << 18;
  const std::vector<Filling> list = fillings(assembly, most);
  std::int64_t elements = 0, converted_bytes = 0;
  for (const Filling& filling : list) {
    elements = std::max(elements, filling.count);
    for (const HeldRun& run : filling.places)
      if (run.type != DType::f32) converted_bytes = std::max(converted_bytes, run.count * size_of(run.type));
  }
  const auto seed = static_cast<std::uint64_t>(assembly.recipe().integer("run.seed"));
  const std::size_t threads = host_threads(info, assembly.mesh().world());
  std::deque<Filler> fillers;
  for (std::size_t t = 0; t < threads; ++t)
    fillers.emplace_back(*assembly.devices().front(), elements, converted_bytes);
  std::vector<std::jthread> workers;
  for (std::size_t t = 0; t < threads; ++t)
    workers.push_back(start_thread<std::jthread>("initial values", [&, t] {
      for (std::size_t i = t; i < list.size(); i += threads) fillers[t].fill(list[i], seed, memory);
    }));
}

}  // namespace prun
