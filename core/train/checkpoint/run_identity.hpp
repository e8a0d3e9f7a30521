// Says which run a folder and the checkpoints in it belong to: random bits, made when a run begins and kept
// as long as it goes on in its own folder. A run that goes on from a checkpoint in another folder is another
// run, which notes its parent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace prun {

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

}  // namespace prun
