#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/floats.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "plan/instances.hpp"
#include "plan/lasting.hpp"
#include "plan/plan.hpp"
#include "prun/split_master.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/settings.hpp"
#include "train/loop/kernel_choices.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// ------------------------------------------------------------------- whether it fits the recipe

// What says which samples there are and in which order, so that a number of samples means something.
bool counts_samples(const std::string& key) {
  return key == "run.seed" || key == "model.seq" || key.starts_with("data.");
}

constexpr const char* moments_key = "precision.moments";

// They would be trained on twice, or never, and nobody would see it.
void check_samples(const Manifest& manifest, const fs::path& folder, const Recipe& recipe) {
  const std::vector<std::string>& allowed = recipe.texts("run.changed");
  for (const Change& change : changes(manifest.recipe, settings_of(recipe)))
    if (counts_samples(change.key) && std::find(allowed.begin(), allowed.end(), change.key) == allowed.end())
      throw_error(ErrorCode::bad_input, change.key, " is ", change.now, ", ", folder.string(),
                  " was saved with ", change.before, ": the ", manifest.progress.samples,
                  " samples trained on so far would be counted among others; if that is meant, say so by "
                  "--set run.changed=",
                  change.key);
}

bool is_float_or_half(DType type) { return type == DType::f32 || type == DType::bf16; }

// Whether moments are there in the other of two formats, which must be asked for: bf16 loses bits.
bool converts_moment(DType had, const LastingTensor& wanted, const Recipe& recipe) {
  const std::vector<std::string>& allowed = recipe.texts("run.changed");
  return wanted.moment && is_float_or_half(had) && is_float_or_half(wanted.type) &&
         std::find(allowed.begin(), allowed.end(), moments_key) != allowed.end();
}

void check_tensor(const CheckpointFiles& files, const LastingTensor& wanted, const Recipe& recipe) {
  const auto found = files.tensors().find(wanted.name);
  if (found == files.tensors().end())
    throw_error(ErrorCode::bad_input, files.folder().string(), " has no tensor '", wanted.name,
                "'; the recipe's model, optimizer or precision differs from the saved run's");
  const CheckpointFiles::Tensor& had = found->second;
  const bool fits = had.type == wanted.type || converts_moment(had.type, wanted, recipe);
  if (!fits || had.shape != wanted.shape)
    throw_error(
        ErrorCode::bad_input, files.folder().string(), ": tensor '", wanted.name, "' is ",
        name_of(to_safetensors_type(had.type)), shape_text(had.shape), ", the recipe makes it ",
        name_of(to_safetensors_type(wanted.type)), shape_text(wanted.shape),
        wanted.moment && had.shape == wanted.shape && is_float_or_half(had.type) &&
                is_float_or_half(wanted.type)
            ? detail::concat("; if moments are to be converted, say so by --set run.changed=", moments_key)
            : "");
}

// Those that the assembly keeps.
std::vector<LastingTensor> has_tensors(const Assembly& assembly, const CheckpointFiles& files) {
  std::vector<LastingTensor> wanted = lasting_tensors(assembly.program(), chain_of(assembly.program()));
  for (const LastingTensor& tensor : wanted) check_tensor(files, tensor, assembly.recipe());
  return wanted;
}

void check_fits(const Assembly& assembly, const CheckpointFiles& files) {
  check_belongs(files.folder(), files.manifest());
  const std::vector<LastingTensor> wanted = has_tensors(assembly, files);
  if (wanted.size() != files.tensors().size())
    throw_error(ErrorCode::bad_input, files.folder().string(), " holds ", files.tensors().size(),
                " tensors, the recipe needs ", wanted.size(),
                "; the recipe's model, optimizer or precision differs from the saved run's");
  check_samples(files.manifest(), files.folder(), assembly.recipe());
}

// ------------------------------------------------------------------- reading

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

// The other half has been read.
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

// In the type that memory has; moments may lie in another one in the file.
std::vector<std::byte> bytes_of(const CheckpointFiles& files, const HeldSlice& held) {
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
  if (held.rounded != none)
    split(files, held, memory, bytes);
  else
    memory.write(held.value, held.instance, held.at * size_of(held.type), bytes);
}

void read_slices(const CheckpointFiles& files, std::span<const HeldSlice> list, const PlanMemory& memory,
                 std::size_t threads) {
  share_out(threads, list.size(), [&](std::size_t, std::size_t i) { read_slice(files, list[i], memory); });
}

// As long as what has a checksum in a file: what reading takes of memory does not grow with the tensors.
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

void read_all(const Assembly& assembly, const CheckpointFiles& files, const PlanMemory& memory) {
  std::vector<HeldSlice> list = in_pieces(files, held_slices(assembly, assembly.rank()));
  const auto halves = std::stable_partition(list.begin(), list.end(),
                                            [](const HeldSlice& held) { return held.rounded == none; });
  const auto whole = static_cast<std::size_t>(halves - list.begin());
  const std::size_t threads = host_threads(assembly.device_info(), assembly.mesh().world());
  read_slices(files, std::span(list).first(whole), memory, threads);
  read_slices(files, std::span(list).subspan(whole), memory, threads);
}

// Calls body(); what it says of a file that cannot be trusted, or nothing. A disk that fails is no such file.
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

// What the first rank that found something has found.
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

// "optimizer.lr from 0.001 to 0.0005, ..."
std::string to_text(const std::vector<Change>& list) {
  constexpr std::size_t most = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(list.size(), most); ++i)
    text += detail::concat(i > 0 ? ", " : "", list[i].key, " from ", list[i].before, " to ", list[i].now);
  if (list.size() > most) text += detail::concat(" and ", list.size() - most, " more");
  return text;
}

bool is_layout(const std::string& key) {
  for (const char* start : {"mesh.", "strategy.", "comm.", "schedule.", "batch.micro"})
    if (key.starts_with(start)) return true;
  return false;
}

// What changes nothing of what is computed.
bool is_told(const std::string& key) {
  return !belongs_to_a_place(key) && (!key.starts_with("run.") || key == "run.steps" || key == "run.seed");
}

// "adamw" of those that both runs have, in another build.
std::vector<std::string> rebuilt(const std::string& before, const std::string& now) {
  const JsonValue then = parse_json(before, "plugins"), today = parse_json(now, "plugins");
  std::vector<std::string> names;
  for (const JsonValue& a : then.as_array())
    for (const JsonValue& b : today.as_array())
      if (a.at("kind").as_string() == b.at("kind").as_string() &&
          a.at("name").as_string() == b.at("name").as_string() && a.at("kind").as_string() != "observer" &&
          a.at("sha256").as_string() != b.at("sha256").as_string())
        names.push_back(a.at("kind").as_string() + " " + a.at("name").as_string());
  return names;
}

// Of what this rank's devices chose, what they had chosen otherwise, or not at all.
std::size_t other_choices(const Assembly& assembly, const KernelChoices& saved) {
  const std::string before = saved.for_rank(static_cast<std::size_t>(assembly.rank())),
                    now = kernel_choices(assembly);
  if (before.empty()) return 0;
  const std::vector<std::string_view> lines = prun::split(before, '\n'), made = prun::split(now, '\n');
  const std::set<std::string_view> known(lines.begin(), lines.end());
  return static_cast<std::size_t>(
      std::count_if(made.begin(), made.end(), [&](std::string_view line) { return !known.contains(line); }));
}

std::vector<std::string> arithmetic_of(const Assembly& assembly) {
  std::vector<std::string> texts;
  for (const DeviceInfo& device : assembly.device_infos()) texts.emplace_back(device.arithmetic.view());
  return texts;
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

// `check`: throws where a checkpoint that can be trusted does not fit.
template <class Check>
LoadedCheckpoint load(const Assembly& assembly, const PlanMemory& memory, const fs::path& where,
                      const Announce& others, Check&& check) {
  LoadedCheckpoint loaded;
  loaded.note = note_without_latest(where);
  for (const fs::path& folder : checkpoints_from(where)) {
    std::optional<CheckpointFiles> files;
    std::string damage = damage_in([&] { files.emplace(folder); });
    if (files) {
      check(*files);
      damage = damage_in([&] { read_all(assembly, *files, memory); });
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
                                 const Announce& others) {
  return load(assembly, memory, where, others,
              [&](const CheckpointFiles& files) { check_fits(assembly, files); });
}

LoadedCheckpoint load_parameters(const Assembly& assembly, const PlanMemory& memory, const fs::path& where,
                                 const Announce& others) {
  return load(assembly, memory, where, others,
              [&](const CheckpointFiles& files) { has_tensors(assembly, files); });
}

void check_sets(const LoadedCheckpoint& loaded, std::span<const SetSize> sets, const Recipe& recipe) {
  const std::vector<std::string>& allowed = recipe.texts("run.changed");
  for (const SetSize& before : loaded.manifest.sets)
    for (const SetSize& now : sets) {
      if (now.name != before.name || now == before) continue;
      if (std::any_of(allowed.begin(), allowed.end(),
                      [&](const std::string& key) { return key.starts_with(before.name + "."); }))
        continue;
      throw_error(ErrorCode::bad_input, before.name, " has ", now.samples, " samples of ", now.tokens,
                  " tokens, ", loaded.folder.string(), " was saved with ", before.samples, " of ",
                  before.tokens, ": files have changed, and the ", loaded.manifest.progress.samples,
                  " samples trained on so far would be counted among others; if that is meant, say so by "
                  "--set run.changed=",
                  before.name, ".path");
    }
}

std::vector<std::string> resume_notes(const Assembly& assembly, const LoadedCheckpoint& loaded,
                                      const std::string& plugins) {
  const Manifest& manifest = loaded.manifest;
  const Progress& progress = manifest.progress;
  std::vector<std::string> notes = {detail::concat(
      "goes on from ", loaded.folder.string(), ": tensors, step ", progress.step, ", ", progress.updates,
      " updates and ", progress.samples, " samples are its own, all else is the recipe's")};
  std::vector<Change> changed = changes(manifest.recipe, settings_of(assembly.recipe())), layout;
  std::erase_if(changed, [](const Change& change) { return !is_told(change.key); });
  std::copy_if(changed.begin(), changed.end(), std::back_inserter(layout),
               [](const Change& change) { return is_layout(change.key); });
  std::erase_if(changed, [](const Change& change) { return is_layout(change.key); });
  if (!changed.empty()) notes.push_back("changed since it was saved: " + to_text(changed));
  if (!layout.empty())
    notes.push_back("laid out otherwise, so that sums have another order: " + to_text(layout));
  if (const std::vector<std::string> names = rebuilt(manifest.plugins, plugins); !names.empty())
    notes.push_back("other builds of plugins than saved it: " + join(names, ", "));
  if (const std::vector<std::string> now = arithmetic_of(assembly); now != manifest.arithmetic)
    notes.push_back("computes other bits than the device that saved it: " + join(manifest.arithmetic, ", ") +
                    " was, " + join(now, ", ") + " is");
  else if (const std::size_t other = other_choices(assembly, manifest.choices); other > 0)
    notes.push_back(detail::concat("computes other bits: ", other,
                                   " of the kernels that were chosen by trying are others"));
  return notes;
}

}  // namespace prun
