#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "base/floats.hpp"
#include "base/thread.hpp"
#include "execute/plan_memory.hpp"
#include "plan/persistent.hpp"
#include "plan/work.hpp"
#include "program/passes.hpp"
#include "prun/split_master.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ checkpoint fit

// Checks whether a checkpoint fits the recipe that goes on from it.

// Says whether a checkpoint has a tensor of that type and shape.
bool has_alike(const CheckpointFiles& files, const std::string& name, DType type, const Extents& shape);

// Says whether it has one of that type which differs in its first extent at most: for a state that ranks have
// apart, the number of these.
bool has_rows(const CheckpointFiles& files, const std::string& name, DType type, const Extents& shape);

// Says whether a key decides which samples there are and in which order, so that a number of samples means
// something.
bool counts_samples(const std::string& key) {
  return key == "run.seed" || key == "model.seq" || key.starts_with("data.");
}

constexpr const char* moments_key = "precision.moments";

// Refuses other samples: some would be trained on twice, or never, without any sign of it.
void check_samples(const Manifest& manifest, const std::filesystem::path& folder, const Recipe& recipe) {
  const std::vector<std::string>& allowed = recipe.texts("run.allow_changed");
  for (const Change& change : changes(manifest.recipe, settings_of(recipe)))
    if (counts_samples(change.key) && std::find(allowed.begin(), allowed.end(), change.key) == allowed.end())
      throw_error(ErrorCode::bad_input, "cannot go on from ", folder.string(), " with ", change.key, " = ",
                  change.now, ": it was saved with ", change.before, ", and the ", manifest.progress.samples,
                  " samples trained on so far would be counted among others; if that is meant, add --set "
                  "run.allow_changed=",
                  change.key);
}

bool is_float_or_half(DType type) { return type == DType::f32 || type == DType::bf16; }

// Says whether moments are there in the other of two formats; the recipe must allow that, since bf16 loses
// bits.
bool converts_moment(DType had, const PersistentTensor& wanted, const Recipe& recipe) {
  const std::vector<std::string>& allowed = recipe.texts("run.allow_changed");
  return wanted.moment && is_float_or_half(had) && is_float_or_half(wanted.type) &&
         std::find(allowed.begin(), allowed.end(), moments_key) != allowed.end();
}

// Says whether a strategy has added a parameter since, or what belongs to it.
bool is_new(const CheckpointFiles& files, const PersistentTensor& wanted, const Recipe& recipe) {
  if (wanted.added_by.empty() || files.tensors().contains(wanted.of_parameter)) return false;
  if (!may_be_new(recipe, wanted.added_by))
    throw_error(ErrorCode::bad_input, files.folder().string(), " has no tensor '", wanted.name, "'",
                how_it_may_be_new(recipe, wanted.added_by));
  return true;
}

// Says whether a state may begin anew, since the files have none of it, or of another layout.
bool begins_anew(const CheckpointFiles& files, const PersistentTensor& wanted, const Recipe& recipe) {
  if (wanted.starts_anew.empty() || has_alike(files, wanted.name, wanted.type, wanted.shape)) return false;
  if (wanted.on_resize && has_rows(files, wanted.name, wanted.type, wanted.shape) &&
      *wanted.on_resize != OnResize::refuse)
    return *wanted.on_resize == OnResize::anew;
  const std::vector<std::string>& allowed = recipe.texts("run.allow_changed");
  if (std::find(allowed.begin(), allowed.end(), wanted.starts_anew) == allowed.end())
    throw_error(
        ErrorCode::bad_input, files.folder().string(),
        files.tensors().contains(wanted.name) ? " has in another shape '" : " has no tensor '", wanted.name,
        "', which ", wanted.starts_anew,
        " keeps for this layout; if it is to begin anew, add --set run.allow_changed=", wanted.starts_anew);
  return true;
}

// Returns how many updates old the oldest weights of a parameter are: NAME.before, NAME.before2, ...
template <class Names>
std::int64_t oldest_of(const Names& names, const std::string& parameter) {
  std::int64_t updates = 0;
  while (names.contains(parameter + name_of_before(updates + 1))) ++updates;
  return updates;
}

// Checks that the files have a parameter's values before the last updates if the run trains with those, and
// only then.
void check_delay(const CheckpointFiles& files, const std::vector<PersistentTensor>& wanted) {
  std::set<std::string> names;
  for (const PersistentTensor& one : wanted) names.insert(one.name);
  for (const PersistentTensor& one : wanted) {
    if (one.name != one.of_parameter) continue;
    const std::int64_t had = oldest_of(files.tensors(), one.name), wants = oldest_of(names, one.name);
    if (had == wants) continue;
    if (std::max(had, wants) > 1 || (had > 0 && wants > 0))
      throw_error(ErrorCode::bad_input, "cannot go on from ", files.folder().string(), ": it has '", one.name,
                  "' as of up to ", had, had == 1 ? " update" : " updates", " ago, and the recipe needs ",
                  wants,
                  "; use the schedule and the stages that it was saved with, or start from its weights by "
                  "model.init");
    throw_error(ErrorCode::bad_input, "cannot go on from ", files.folder().string(), ": it was ",
                had > 0 ? "" : "not ",
                "trained with weights of one update before (a schedule with delay=1), and the recipe ",
                had > 0 ? "does not do so" : "does so",
                "; use the schedule that it was saved with, or start from its weights by model.init");
  }
}

// Says whether the files have, under a parameter's name, what stands for it: the parameter is rounded from
// that.
bool stands_for(const CheckpointFiles& files, const PersistentTensor& wanted, DType had) {
  return wanted.name == wanted.of_parameter && is_float_or_half(had) && is_float_or_half(wanted.type) &&
         files.tensors().contains(wanted.name + trained_suffix);
}

void check_tensor(const CheckpointFiles& files, const PersistentTensor& wanted, const Recipe& recipe) {
  const auto found = files.tensors().find(wanted.name);
  if (found == files.tensors().end())
    throw_error(ErrorCode::bad_input, files.folder().string(), " has no tensor '", wanted.name,
                "'; the recipe's model, optimizer or precision differs from the saved run's");
  const CheckpointFiles::Tensor& had = found->second;
  const bool fits = had.type == wanted.type || converts_moment(had.type, wanted, recipe) ||
                    stands_for(files, wanted, had.type);
  if (!fits || had.shape != wanted.shape)
    throw_error(
        ErrorCode::bad_input, files.folder().string(), ": tensor '", wanted.name, "' is ",
        name_of(to_safetensors_type(had.type)), shape_text(had.shape), ", the recipe makes it ",
        name_of(to_safetensors_type(wanted.type)), shape_text(wanted.shape),
        wanted.moment && had.shape == wanted.shape && is_float_or_half(had.type) &&
                is_float_or_half(wanted.type)
            ? detail::concat("; if moments are to be converted, add --set run.allow_changed=", moments_key)
            : "");
}

bool has_alike(const CheckpointFiles& files, const std::string& name, DType type, const Extents& shape) {
  const auto found = files.tensors().find(name);
  return found != files.tensors().end() && found->second.type == type && found->second.shape == shape;
}

bool has_rows(const CheckpointFiles& files, const std::string& name, DType type, const Extents& shape) {
  const auto found = files.tensors().find(name);
  if (found == files.tensors().end() || found->second.type != type) return false;
  const Extents& had = found->second.shape;
  return had.size() == shape.size() && std::equal(had.begin() + 1, had.end(), shape.begin() + 1);
}

// Throws if a tensor that the assembly keeps is missing, or is of another shape or type. Returns those that
// are there: all, unless run.allow_changed names a strategy that has added parameters since.
std::vector<PersistentTensor> has_tensors(const Assembly& assembly, const CheckpointFiles& files) {
  std::vector<PersistentTensor> wanted = persistent_tensors(assembly.program(), chain_of(assembly.program()));
  std::erase_if(wanted, [&](const PersistentTensor& one) {
    return is_new(files, one, assembly.recipe()) || begins_anew(files, one, assembly.recipe());
  });
  for (const PersistentTensor& tensor : wanted)
    if (tensor.on_resize != OnResize::sum) check_tensor(files, tensor, assembly.recipe());
  return wanted;
}

// Counts the files' tensors that begin anew.
std::size_t left_out(const Assembly& assembly, const CheckpointFiles& files) {
  std::size_t count = 0;
  for (const PersistentTensor& one : persistent_tensors(assembly.program(), chain_of(assembly.program())))
    if (!one.starts_anew.empty() && one.on_resize != OnResize::sum && files.tensors().contains(one.name))
      count += has_alike(files, one.name, one.type, one.shape) ? 0 : 1;
  return count;
}

// Throws likewise, and also if there is more than these, samples are counted in other sets, or the checkpoint
// lies in the folder of another step or run.
void check_fits(const Assembly& assembly, const CheckpointFiles& files) {
  check_belongs(files.folder(), files.manifest());
  check_delay(files, persistent_tensors(assembly.program(), chain_of(assembly.program())));
  const std::vector<PersistentTensor> wanted = has_tensors(assembly, files);
  const std::size_t held = files.tensors().size() - left_out(assembly, files);
  if (wanted.size() != held)
    throw_error(ErrorCode::bad_input, files.folder().string(), " holds ", held, " tensors, the recipe needs ",
                wanted.size(), "; the recipe's model, optimizer or precision differs from the saved run's");
  check_samples(files.manifest(), files.folder(), assembly.recipe());
}

// ------------------------------------------------------------ checkpoint reading

// Reads the tensors of a checkpoint into the memory of a rank.

// Reads the rank's part of every tensor, by all threads that the rank may use. Throws if data cannot be
// trusted. For an assembly that keeps parameters alone these may be states of that name.
void read_all(const Assembly& assembly, const CheckpointFiles& files, const PlanMemory& memory,
              const std::string& state = {});

template <class T>
void check_finite(const CheckpointFiles& files, const HeldSlice& held, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    T number;
    std::memcpy(&number, bytes.data() + i * sizeof(T), sizeof(T));
    if (!std::isfinite(static_cast<double>(number)))
      throw_error(ErrorCode::bad_input, files.folder().string(), ": tensor '", held.tensor, "' holds ",
                  static_cast<double>(number), " at element ",
                  whole_index(held.slice, static_cast<std::int64_t>(i)),
                  ", and did when it was saved; go on from an earlier checkpoint");
  }
}

// Reads one half of split floats; the other half has been read.
void split(const CheckpointFiles& files, const HeldSlice& held, const PlanMemory& memory,
           std::span<const std::byte> bytes) {
  std::vector<std::uint16_t> rounded(static_cast<std::size_t>(held.slice.count)), low(rounded.size());
  const std::int64_t offset = held.at * size_of(DType::u16);
  memory.read(held.rounded, held.instance, offset, std::as_writable_bytes(std::span(rounded)));
  for (std::size_t i = 0; i < low.size(); ++i) {
    float number;
    std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
    low[i] = low_half(number);
    if (rounded[i] != rounded_half(number))
      throw_error(ErrorCode::bad_input, files.folder().string(), ": tensor '", held.tensor,
                  "' does not round to its parameters at element ",
                  whole_index(held.slice, static_cast<std::int64_t>(i)),
                  ", as it must for precision.master = \"split\"; take one step with \"fp32\" before");
  }
  memory.write(held.value, held.instance, offset, std::as_bytes(std::span(low)));
}

// Adds up what all ranks had of a state, for the first of those that have it now; the others have zeros.
template <class T>
std::vector<std::byte> sum_of_rows(const CheckpointFiles& files, const HeldSlice& held) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(held.bytes())), row(bytes.size());
  TensorSlice saved = held;
  saved.slice.whole = files.tensor(held.tensor).shape;
  std::vector<double> sums(static_cast<std::size_t>(held.slice.count));
  for (std::int64_t& k = saved.slice.start[0] = 0; k < saved.slice.whole[0] && held.slice.start[0] == 0;
       ++k) {
    files.read(saved, row);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      T number;
      std::memcpy(&number, row.data() + i * sizeof(T), sizeof(T));
      sums[i] += static_cast<double>(number);
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const T number = static_cast<T>(sums[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &number, sizeof(T));
  }
  return bytes;
}

// Returns bytes in the type that memory has; moments may have another one in the file.
std::vector<std::byte> bytes_of(const CheckpointFiles& files, const HeldSlice& held) {
  if (files.tensor(held.tensor).shape != held.slice.whole)
    return held.type == DType::f64   ? sum_of_rows<double>(files, held)
           : held.type == DType::f32 ? sum_of_rows<float>(files, held)
                                     : sum_of_rows<bf16>(files, held);
  TensorSlice saved = held;
  saved.type = files.tensor(held.tensor).type;
  std::vector<std::byte> bytes(static_cast<std::size_t>(saved.bytes()));
  files.read(saved, bytes);
  if (saved.type == held.type) return bytes;
  std::vector<float> numbers(static_cast<std::size_t>(held.slice.count));
  load_floats(saved.type, bytes, numbers);
  bytes.resize(static_cast<std::size_t>(held.bytes()));
  store_floats(held.type, numbers, bytes.data());
  return bytes;
}

void read_slice(const CheckpointFiles& files, const HeldSlice& held, const PlanMemory& memory) {
  const std::vector<std::byte> bytes = bytes_of(files, held);
  if (held.type == DType::f64) check_finite<double>(files, held, bytes);
  if (held.type == DType::f32) check_finite<float>(files, held, bytes);
  if (held.type == DType::bf16) check_finite<bf16>(files, held, bytes);
  if (held.type == DType::f16) check_finite<f16>(files, held, bytes);
  if (held.rounded != none)
    split(files, held, memory, bytes);
  else
    memory.write(held.value, held.instance, held.at * size_of(held.type), bytes);
}

void read_slices(const CheckpointFiles& files, std::span<const HeldSlice> list, const PlanMemory& memory,
                 std::size_t threads) {
  share_out(threads, list.size(), [&](std::size_t, std::size_t i) { read_slice(files, list[i], memory); });
}

// Cuts slices into pieces as long as those with a checksum in a file: the memory that reading takes does not
// grow with the tensors.
std::vector<HeldSlice> in_pieces(const CheckpointFiles& files, const std::vector<HeldSlice>& list) {
  std::vector<HeldSlice> pieces;
  for (const HeldSlice& held : list) {
    const std::int64_t most = checksum_chunk_bytes / size_of(files.tensor(held.tensor).type);
    for (std::int64_t first = 0; first < held.slice.count; first += most) {
      HeldSlice& piece = pieces.emplace_back(held);
      piece.slice.first += first;
      piece.slice.count = std::min(most, held.slice.count - first);
      piece.at += first;
    }
  }
  return pieces;
}

// Returns parameters that the files do not have, and takes their slices from the list: the check that the
// files fit has allowed them.
std::set<Id> take_new(const Assembly& assembly, const CheckpointFiles& files, std::vector<HeldSlice>& list) {
  std::set<Id> taken;
  std::erase_if(list, [&](const HeldSlice& held) {
    const Value& value = assembly.program().value(held.value);
    if (!value.starts_anew.empty() && !has_alike(files, held.tensor, held.type, held.slice.whole)) {
      const bool summed = value.declared && value.on_resize == OnResize::sum &&
                          has_rows(files, held.tensor, held.type, held.slice.whole);
      if (!summed) taken.insert(held.value);
      return !summed;
    }
    if (held.parameter == none || assembly.program().value(held.parameter).added_by.empty()) return false;
    if (files.tensors().contains(held.tensor)) return false;
    taken.insert(held.parameter);
    return true;
  });
  return taken;
}

void read_all(const Assembly& assembly, const CheckpointFiles& files, const PlanMemory& memory,
              const std::string& state) {
  std::vector<HeldSlice> held = assembly.held_slices();
  initialize_new(assembly, memory, take_new(assembly, files, held));
  if (!state.empty())
    for (HeldSlice& slice : held) slice.tensor = weights_of(files, slice.tensor, state);
  std::vector<HeldSlice> list = in_pieces(files, held);
  const auto halves = std::stable_partition(list.begin(), list.end(),
                                            [](const HeldSlice& one) { return one.rounded == none; });
  const auto whole = static_cast<std::size_t>(halves - list.begin());
  const std::size_t threads = host_threads(assembly.device_info(), assembly.mesh().world());
  read_slices(files, std::span(list).first(whole), memory, threads);
  read_slices(files, std::span(list).subspan(whole), memory, threads);
}

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
                      const Announce& others, const StartValues* base, const std::string& state,
                      Check&& check) {
  LoadedCheckpoint loaded;
  loaded.note = note_without_latest(where);
  for (const fs::path& folder : checkpoints_from(where)) {
    std::optional<CheckpointFiles> files;
    std::string damage = damage_in([&] { files.emplace(folder); });
    if (files) {
      check(*files);
      take_base(assembly, *files, memory, base);
      damage = damage_in([&] { read_all(assembly, *files, memory, state); });
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
  return load(assembly, memory, where, others, base, "",
              [&](const CheckpointFiles& files) { check_fits(assembly, files); });
}

LoadedCheckpoint load_parameters(const Assembly& assembly, const PlanMemory& memory, const fs::path& where,
                                 const Announce& others, const StartValues* base, const std::string& state) {
  return load(assembly, memory, where, others, base, state, [&](const CheckpointFiles& files) {
    check_has(files, state);
    has_tensors(assembly, files);
  });
}

void check_sets(const LoadedCheckpoint& loaded, std::span<const SetSize> sets, const Recipe& recipe) {
  const std::vector<std::string>& allowed = recipe.texts("run.allow_changed");
  for (const SetSize& before : loaded.manifest.sets)
    for (const SetSize& now : sets) {
      if (now.name != before.name || now == before) continue;
      if (std::any_of(allowed.begin(), allowed.end(),
                      [&](const std::string& key) { return key.starts_with(before.name + "."); }))
        continue;
      throw_error(ErrorCode::bad_input, "cannot go on from ", loaded.folder.string(), ": ", before.name,
                  " has ", now.samples, " samples of ", now.tokens, " tokens, and had ", before.samples,
                  " of ", before.tokens, ", so the ", loaded.manifest.progress.samples,
                  " samples trained on so far would be counted among others; if that is meant, add --set "
                  "run.allow_changed=",
                  before.name, ".path");
    }
}

}  // namespace prun
