// Measures drives as a tier moves bytes to and from them: read, written, and both at a time, by transfers of
// several sizes, several at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "estimate/costs.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- io bench

struct IoCase {
  std::int64_t stripe_kib = 1024;
  std::int64_t depth = 16;  // counts transfers each way on each drive

  friend bool operator==(const IoCase&, const IoCase&) = default;
};
// Names a device plugin whose note says that it is a tier, and its options: for folders, and for cases.
struct TierPlugin {
  std::string name, paths;
  std::string kib, depth;             // empty: it has none, and there is one case
  std::string read_rate, write_rate;  // empty: it has none
};
std::vector<TierPlugin> tier_plugins(std::span<const SearchPlace> places);

std::vector<IoCase> io_cases(const TierPlugin& tier);

// States bytes a second.
struct IoRates {
  double read = 0, write = 0;
  double mix_read = 0, mix_write = 0;  // those of both at a time

  double mix() const { return mix_read + mix_write; }
};

struct IoAsked {
  TierPlugin tier;
  std::vector<std::filesystem::path> folders;
  std::int64_t bytes = std::int64_t{512} << 20;  // counts those of all files together
  double seconds = 1;                            // for each way
};
IoRates time_drives(PluginHost& plugins, const IoAsked& asked, const IoCase& one);

// Adds what a copy to or from drives takes while others go the other way, as in training.
void add_drives(const IoAsked& asked, PluginHost& plugins, const IoRates& rates, CostTable& table);

// Times each folder alone, and returns the lines by which a recipe states the rates; nothing if the tier has
// no such options.
std::string io_recipe(PluginHost& plugins, const IoAsked& asked, const IoCase& one, const IoRates& together);

std::string io_header();
std::string io_line(const IoCase& one, const IoRates& rates);
std::string io_json(const IoAsked& asked, const std::vector<std::pair<IoCase, IoRates>>& results);

// ------------------------------------------------------------------- memory bench
// Measures what the host's memory carries when all cores use it at once: updates there, copies and drives
// have to share this.

// Returns the bytes a second that are read and written by a = a + s b over more than caches hold. Every byte
// that moves is counted: what is written has been read, so no further bytes are read.
double host_bandwidth();

}  // namespace prun
