#include "measure/io_bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <thread>

#include "base/json.hpp"
#include "base/machine.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "execute/device_memory.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/model_program.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- io bench

using Clock = std::chrono::steady_clock;

constexpr std::int64_t call_bytes = std::int64_t{128} << 20;  // is what a queue is given at once
constexpr std::int64_t piece_bytes = std::int64_t{16} << 20;  // is one copy's

// Returns a recipe of nothing but a tier.
Recipe recipe_of_drives(const IoAsked& asked, const IoCase& one, PluginHost& plugins) {
  std::string paths;
  for (const std::filesystem::path& folder : asked.folders)
    paths += (paths.empty() ? "" : ", ") + recipe::to_toml(std::filesystem::absolute(folder).string());
  const TierPlugin& tier = asked.tier;
  std::string table = detail::concat("[tier.", tier.name, "]\n", tier.paths, " = [", paths, "]\n");
  if (!tier.kib.empty())
    table += detail::concat(tier.kib, " = ", one.stripe_kib, "\n", tier.depth, " = ", one.depth, "\n");
  return Recipe::parse(smallest_recipe + table, "the drives", {}, plugins.catalog());
}

// Is a queue that goes through the whole tier, one way, again and again.
class Way {
 public:
  Way(DeviceInterface& tier, DeviceInterface& host, std::byte* disk, std::int64_t bytes, bool writes)
      : tier_(tier), memory_(host, call_bytes) {
    raise(tier_.create_queue(writes ? "bench.write" : "bench.read", false, &queue_));
    for (std::int64_t at = 0; at + call_bytes <= bytes; at += call_bytes)
      works_.push_back(bind(disk + at, writes));
  }
  ~Way() { tier_.destroy_queue(queue_); }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  // Runs until that time, and returns bytes a second.
  double run_until(Clock::time_point end) {
    raise(tier_.attach(queue_));
    const Clock::time_point begin = Clock::now();
    double bytes = 0;
    for (std::size_t i = 0; Clock::now() < end; ++i, bytes += static_cast<double>(call_bytes))
      raise(tier_.run(queue_, works_[i % works_.size()]));
    return bytes / std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  BoundWork bind(std::byte* disk, bool writes) {
    const auto operand = [](std::byte* data) {
      Tensor tensor;
      tensor.data = data;
      tensor.dtype = DType::u8;
      tensor.rank = 1;
      tensor.dim[0] = piece_bytes;
      return tensor;
    };
    std::vector<std::array<Tensor, 2>>& operands = operands_.emplace_back();
    std::vector<Launch>& launches = launches_.emplace_back();
    for (std::int64_t at = 0; at < call_bytes; at += piece_bytes) {
      const Tensor there = operand(disk + at), here = operand(memory_.data() + at);
      operands.push_back({writes ? here : there, writes ? there : here});
    }
    for (const std::array<Tensor, 2>& pair : operands) {
      Launch& launch = launches.emplace_back();
      launch.op = "copy";
      launch.args.operands = pair.data();
      launch.args.operand_count = 2;
    }
    BoundWork work = nullptr;
    raise(tier_.bind(queue_, launches.data(), static_cast<std::int64_t>(launches.size()), &work));
    return work;
  }

  DeviceInterface& tier_;
  Pinned memory_;
  Queue queue_ = nullptr;
  std::deque<std::vector<std::array<Tensor, 2>>> operands_;  // must outlive the works
  std::deque<std::vector<Launch>> launches_;
  std::vector<BoundWork> works_;
};

Clock::time_point in(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

std::vector<TierPlugin> tier_plugins(std::span<const SearchPlace> places) {
  std::vector<TierPlugin> tiers;
  for (const PluginNote& note : usable_notes(places, "device")) {
    const std::string_view paths = trait_of(note, "tier");
    if (paths.empty()) continue;
    TierPlugin tier{note.name, std::string(paths), "", "", "", ""};
    const std::vector<std::string_view> cases = split(trait_of(note, "transfers"), ',');
    if (cases.size() == 2) tier.kib = trim(cases[0]), tier.depth = trim(cases[1]);
    const std::vector<std::string_view> rates = split(trait_of(note, "rates"), ',');
    if (rates.size() == 2) tier.read_rate = trim(rates[0]), tier.write_rate = trim(rates[1]);
    tiers.push_back(std::move(tier));
  }
  return tiers;
}

std::vector<IoCase> io_cases(const TierPlugin& tier) {
  if (tier.kib.empty()) return {{}};
  std::vector<IoCase> cases;
  for (const std::int64_t kib : {256, 1024, 4096})
    for (const std::int64_t depth : {4, 16, 32}) cases.push_back({kib, depth});
  return cases;
}

IoRates time_drives(PluginHost& plugins, const IoAsked& asked, const IoCase& one) {
  const Recipe recipe = recipe_of_drives(asked, one, plugins);
  const auto tier = plugins.create<DeviceInterface>("device", asked.tier.name, recipe);
  const auto host = plugins.create<DeviceInterface>("device", recipe.section("device"));
  const std::int64_t bytes = std::max(asked.bytes, call_bytes);
  const DeviceMemory disk(*tier, Space::disk, bytes);
  Way read(*tier, *host, disk.data(), bytes, false), write(*tier, *host, disk.data(), bytes, true);
  IoRates rates;
  rates.write = write.run_until(in(asked.seconds));
  rates.read = read.run_until(in(asked.seconds));
  const Clock::time_point end = in(asked.seconds);
  std::exception_ptr failed;
  std::thread other([&] {
    try {
      rates.mix_write = write.run_until(end);
    } catch (...) {
      failed = std::current_exception();
    }
  });
  try {
    rates.mix_read = read.run_until(end);
  } catch (...) {
    failed = std::current_exception();
  }
  other.join();
  if (failed) std::rethrow_exception(failed);
  return rates;
}

void add_drives(const IoAsked& asked, PluginHost& plugins, const IoRates& rates, CostTable& table) {
  const auto tier =
      plugins.create<DeviceInterface>("device", asked.tier.name, recipe_of_drives(asked, {}, plugins));
  DeviceInfo info;
  raise(tier->info(&info));
  // The op counts the bytes it reads and the bytes it writes.
  const KernelFit fit{0, 0, 1 / rates.mix()};
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::u16})
    table.kernels[{"copy", type, std::string(info.name.view())}] = fit;
}

std::string io_recipe(PluginHost& plugins, const IoAsked& asked, const IoCase& one, const IoRates& together) {
  if (asked.tier.read_rate.empty()) return "";
  std::string paths, reads, writes;
  for (const std::filesystem::path& folder : asked.folders) {
    IoAsked alone = asked;
    alone.folders = {folder};
    const IoRates rates = asked.folders.size() == 1 ? together : time_drives(plugins, alone, one);
    const char* const comma = paths.empty() ? "" : ", ";
    paths += comma + recipe::to_toml(std::filesystem::absolute(folder).string());
    reads += format("%s%.2f", comma, std::max(rates.read / 1e9, 0.01));
    writes += format("%s%.2f", comma, std::max(rates.write / 1e9, 0.01));
  }
  const TierPlugin& tier = asked.tier;
  return detail::concat("for a recipe, GB/s of each folder alone:\n[tier.", tier.name, "]\n", tier.paths,
                        " = [", paths, "]\n", tier.read_rate, " = [", reads, "]\n", tier.write_rate, " = [",
                        writes, "]\n");
}

std::string io_header() {
  return "transfers   depth    read GB/s   write GB/s   both GB/s (read + written)\n";
}

std::string io_line(const IoCase& one, const IoRates& rates) {
  return format("%5lld KiB   %5lld    %9.2f    %9.2f   %9.2f (%.2f + %.2f)\n",
                static_cast<long long>(one.stripe_kib), static_cast<long long>(one.depth), rates.read / 1e9,
                rates.write / 1e9, rates.mix() / 1e9, rates.mix_read / 1e9, rates.mix_write / 1e9);
}

std::string io_json(const IoAsked& asked, const std::vector<std::pair<IoCase, IoRates>>& results) {
  JsonWriter json;
  json.begin_object().name("paths").begin_array();
  for (const std::filesystem::path& folder : asked.folders) json.value(folder.string());
  json.end_array().member("bytes", asked.bytes).name("results").begin_array();
  for (const auto& [one, rates] : results) {
    json.begin_object().member("stripe_kib", one.stripe_kib).member("depth", one.depth);
    json.member("read", rates.read).member("write", rates.write);
    json.member("mix_read", rates.mix_read).member("mix_write", rates.mix_write).end_object();
  }
  return json.end_array().end_object().take();
}

namespace {

// ------------------------------------------------------------------- memory bench

constexpr std::size_t elements = std::size_t{128} << 20;  // counts those of each: half a GiB
constexpr std::size_t piece = std::size_t{1} << 20;
constexpr int repeats = 5;

double seconds_of(auto&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// Returns the rate of the fastest of some runs: other programs only slow them down. A piece may have another
// thread each time, as with updates.
double host_bandwidth() {
  const auto threads = static_cast<std::size_t>(this_machine().cores);
  const auto a = std::make_unique_for_overwrite<float[]>(elements),
             b = std::make_unique_for_overwrite<float[]>(elements);
  const auto all = [&](auto&& each) {
    share_out(threads, elements / piece,
              [&](std::size_t, std::size_t i) { each(a.get() + i * piece, b.get() + i * piece); });
  };
  all([](float* x, float* y) {
    std::fill_n(x, piece, 1.0f);
    std::fill_n(y, piece, 2.0f);
  });
  double least = std::numeric_limits<double>::max();
  for (int repeat = 0; repeat < repeats; ++repeat)
    least = std::min(least, seconds_of([&] {
                       all([](float* x, const float* y) {
                         for (std::size_t i = 0; i < piece; ++i) x[i] += 0.5f * y[i];
                       });
                     }));
  return 3.0 * sizeof(float) * static_cast<double>(elements) / least;
}

}  // namespace prun
