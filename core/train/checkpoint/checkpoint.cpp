#include "train/checkpoint/checkpoint.hpp"

#include "train/assemble/process_memory.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/checkpoint_fit.hpp"
#include "train/checkpoint/checkpoint_reading.hpp"
#include "train/checkpoint/weights.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// Calls body(), and returns what it says of a file that cannot be trusted, or nothing. A disk that fails is
// no such file.
template <class Body>
std::string damage_in(Body&& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    if (exit_code(error.code()) != exit_code(ErrorCode::bad_input)) throw;
    return error.what();
  }
}

// Returns what the first rank that found damage has found.
std::string damage_anywhere(const std::string& mine, const Announce& others) {
  if (!others) return mine;
  for (const std::string& said : others("checkpoint", mine))
    if (!said.empty()) return said;
  return {};
}

fs::path real_parent(const fs::path& folder) {
  std::error_code ignored;
  return fs::canonical(folder, ignored).parent_path();
}

}  // namespace

LoadedCheckpoint check_checkpoint(const Assembly& assembly, const fs::path& where) {
  std::string first;
  for (const fs::path& folder : checkpoints_from(where)) {
    std::optional<CheckpointFiles> files;
    const std::string damage = damage_in([&] { files.emplace(folder); });
    if (files) {
      check_fits(assembly, *files);
      return {files->manifest(), folder, real_parent(folder), {}, {}};
    }
    if (first.empty()) first = damage;
  }
  throw_error(ErrorCode::bad_input, first);
}

namespace {

// Takes what the files leave to the base: the first rank reads every byte of it, all read their parts.
void take_base(const Assembly& assembly, const CheckpointFiles& files, const PlanMemory& memory,
               const StartValues* base) {
  if (!has_base(assembly.program())) return;
  PRUN_CHECK(base, "nobody has opened what the checkpoint leaves to model.init");
  if (assembly.rank() == 0)
    check_base(*base, files.manifest().base, assembly.recipe(),
               host_threads(assembly.device_info(), assembly.mesh().world()));
  initialize_base(assembly, memory, *base);
}

// `check` throws if a checkpoint that can be trusted does not fit.
template <class Check>
LoadedCheckpoint load(const Assembly& assembly, const PlanMemory& memory, const fs::path& where,
                      const Announce& others, const StartValues* base, Weights which, Check&& check) {
  LoadedCheckpoint loaded;
  loaded.note = note_without_latest(where);
  for (const fs::path& folder : checkpoints_from(where)) {
    std::optional<CheckpointFiles> files;
    std::string damage = damage_in([&] { files.emplace(folder); });
    if (files) {
      check(*files);
      take_base(assembly, *files, memory, base);
      damage = damage_in([&] { read_all(assembly, *files, memory, which); });
    }
    damage = damage_anywhere(damage, others);
    if (damage.empty()) {
      loaded.manifest = files->manifest();
      loaded.folder = folder;
      loaded.run_folder = real_parent(folder);
      return loaded;
    }
    loaded.damaged.push_back({folder, damage});
  }
  throw_error(ErrorCode::bad_input, loaded.damaged.front().why);
}

}  // namespace

LoadedCheckpoint load_checkpoint(const Assembly& assembly, const PlanMemory& memory, const fs::path& where,
                                 const Announce& others, const StartValues* base) {
  return load(assembly, memory, where, others, base, Weights::trained,
              [&](const CheckpointFiles& files) { check_fits(assembly, files); });
}

LoadedCheckpoint load_parameters(const Assembly& assembly, const PlanMemory& memory, const fs::path& where,
                                 const Announce& others, const StartValues* base, Weights which) {
  return load(assembly, memory, where, others, base, which, [&](const CheckpointFiles& files) {
    check_has(files, which);
    has_tensors(assembly, files);
  });
}

}  // namespace prun
