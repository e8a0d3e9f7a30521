// manifest.json of a checkpoint states what was saved of which run, and which files belong together. Each
// file's checksums are in its own header (see base/safetensors.hpp); the manifest has the checksum of each
// header, and one of itself, so that every byte of all files is covered.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/recipe.hpp"
#include "train/assemble/loss_settings.hpp"

namespace prun {

// ------------------------------------------------------------------- settings
// Represents a recipe as keys and values, to be compared with another one.

// Lists keys and their values as TOML, defaults included.
using Settings = std::vector<std::pair<std::string, std::string>>;
Settings settings_of(const Recipe& recipe);

// Returns a recipe's text that gives the same settings.
std::string to_toml(const Settings& settings);

// Says whether a key belongs to a place: where a run writes, what shows it, on what it runs, the files that
// its model comes from, whose meaning other keys have.
bool belongs_to_a_place(std::string_view key);

struct Change {
  std::string key, before, now;  // values; "nothing" if there is none
};
// Returns changes in the order of the keys.
std::vector<Change> changes(const Settings& before, const Settings& now);

// ------------------------------------------------------------------- manifest

// ------------------------------------------------------------ run identity

// Says which run a folder and the checkpoints in it belong to: random bits, made when a run begins and kept
// as long as it goes on in its own folder. A run that goes on from a checkpoint in another folder is another
// run, which notes its parent.
struct RunIdentity {
  std::string id;      // 128 bits in hexadecimal digits; empty: still unknown
  std::string parent;  // text such as "ID at step N"; empty: begun from nothing
};

// States where a run goes on from.
struct Origin {
  std::filesystem::path run_folder;  // folder of the checkpoint's run, without links
  RunIdentity run;
  std::int64_t step = 0;
};

bool is_run_id(const std::string& text);

// Returns an identity that no run has yet, begun from nothing.
RunIdentity fresh_run();

// Returns the run that a folder belongs to, or nothing if no run has claimed it.
std::optional<RunIdentity> owner_of(const std::filesystem::path& run_folder);

// Returns the identity of a run that writes into this folder, which is its own from then on. Throws if the
// folder holds checkpoints of another one.
RunIdentity claim_folder(const std::filesystem::path& run_folder, const std::optional<Origin>& origin);

// Throws if another run has claimed the folder since.
void keep_claim(const std::filesystem::path& run_folder, const RunIdentity& run);

// Holds what a run needs besides tensors to go on as if it had never stopped.
struct Progress {
  std::int64_t step = 0;     // number of steps done
  std::int64_t updates = 0;  // number of those that the optimizer took
  std::int64_t samples = 0;  // number of samples trained on so far
  LossScale loss_scale = {};
};

// Holds what the devices of each rank chose by measuring (Device::choices): different texts, and which one is
// a rank's.
struct KernelChoices {
  std::vector<std::string> texts;
  std::vector<std::size_t> of;  // text number by rank; empty: no device measured anything

  void add(const std::string& text);  // adds the text of the next rank
  // Returns, for a rank of any layout, its own lines, then those of all others, of which the first for a key
  // counts.
  std::string for_rank(std::size_t rank) const;
};

// States how large a set of samples is: a sample's number means another sample in a larger or smaller one.
struct SetSize {
  std::string name;  // name such as "data", "data.blend.0"
  std::int64_t samples = 0, tokens = 0;

  friend bool operator==(const SetSize&, const SetSize&) = default;
};

struct Manifest {
  struct File {
    std::uint64_t bytes = 0;
    std::string checksum;  // checksum of its header
  };

  RunIdentity run;
  std::int64_t save = 0;  // number of the save in the run: going back to a step and on again gives a step
                          // twice
  Progress progress;
  std::string mesh;                     // text such as "dp=2 tp=2"; empty: one rank
  std::vector<std::string> arithmetic;  // what each device's bits depend on, in its words
  KernelChoices choices;
  Settings recipe;
  std::string plugins;        // text of plugin_record()
  std::vector<File> files;    // files named by their number
  std::vector<SetSize> sets;  // empty if an older prun saved it
  // This digests the weights that `model.init` names (StartValues::content), which the files lack; empty:
  // they have all.
  std::string base = {};
};

inline constexpr const char* manifest_name = "manifest.json";

// Returns a name such as "rank-00000.safetensors".
std::string rank_file_name(std::size_t number);

// Writes one line, sealed by its checksum.
std::string to_text(const Manifest& manifest);

// Parses a manifest; throws bad_input for anything but a text that to_text() may give, its checksum aside.
// `source` names it.
Manifest parse_manifest(std::string_view text, std::string_view source);
// Reads a manifest; throws bad_input for anything but one as it was written.
Manifest read_manifest(const std::filesystem::path& checkpoint);
std::string manifest_checksum(const Manifest& manifest);

}  // namespace prun
