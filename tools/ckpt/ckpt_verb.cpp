// Implements prun ckpt ls | show | verify | diff | reshard | prune.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/durable_file.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "prun/visible.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/run_folder.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- checkpoints
// Lists, describes, compares, rewrites and removes checkpoints for prun ckpt.

// Lists the checkpoints in the folder of a run, those saved last first, a line each; damaged ones are named.
std::string list_checkpoints(const std::filesystem::path& run_folder);

std::string checkpoints_json(const std::filesystem::path& run_folder);

// Describes a checkpoint: its manifest, and its tensors. With `recipe` it returns the recipe that the
// checkpoint was saved with, instead.
std::string describe_checkpoint(const std::filesystem::path& checkpoint, bool recipe);

std::string checkpoint_json(const std::filesystem::path& checkpoint);

// Compares every byte of one checkpoint, or of all in the folder of a run, with its checksums.
struct CheckpointVerdict {
  std::filesystem::path checkpoint;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;             // counts bytes of the tensors
  std::vector<std::string> troubles;  // empty where all is as it was written
};
std::vector<CheckpointVerdict> verify_checkpoints(const std::filesystem::path& where);

struct CheckpointDifference {
  std::string text;
  bool tensors_differ = false;
};
CheckpointDifference compare_checkpoints(const std::filesystem::path& before,
                                         const std::filesystem::path& after);

// Writes the same checkpoint as `files` files, each of whole tensors, in a folder that does not exist yet.
void reshard_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                        std::int64_t files);

// Removes checkpoints as a run would that has these keys; returns which. Throws bad_input while a run works
// in the folder; it waits for another process that prunes there.
std::vector<std::filesystem::path> prune_checkpoints(const std::filesystem::path& run_folder, Keep keep);

namespace fs = std::filesystem;
using Tensor = CheckpointFiles::Tensor;

TensorSlice all_of(const std::string& name, const Tensor& tensor) {
  return {name, tensor.type, whole_slice(tensor.shape)};
}

std::vector<std::byte> bytes_of(const CheckpointFiles& files, const TensorSlice& slice) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(slice.bytes()));
  files.read(slice, bytes);
  return bytes;
}

std::string type_text(const Tensor& tensor) {
  return std::string(name_of(to_safetensors_type(tensor.type))) + shape_text(tensor.shape);
}

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const Manifest::File& file : manifest.files) bytes += file.bytes;
  return bytes;
}

std::string line_of(const fs::path& folder, const std::optional<fs::path>& latest) {
  const std::string name = visible(folder.filename().string());
  char text[256];
  try {
    const Manifest manifest = read_manifest(folder);
    std::snprintf(text, sizeof text, "%-16s save %-5lld %-11s %3zu file%s  %s%s", name.c_str(),
                  static_cast<long long>(manifest.save), size_text(bytes_of(manifest)).c_str(),
                  manifest.files.size(), manifest.files.size() == 1 ? " " : "s",
                  manifest.mesh.empty() ? "one rank" : visible(manifest.mesh).c_str(),
                  folder == latest ? "  latest" : "");
    return std::string(text) + "\n";
  } catch (const Error& error) {
    return name + " cannot be used: " + error.what() + "\n";
  }
}

// Writes members of an object that lists and descriptions of checkpoints share.
void write_facts(JsonWriter& json, const fs::path& folder, const Manifest& manifest) {
  json.member("checkpoint", folder.string()).member("run", manifest.run.id).member("save", manifest.save);
  json.member("step", manifest.progress.step).member("updates", manifest.progress.updates);
  json.member("samples", manifest.progress.samples).member("mesh", manifest.mesh);
  if (manifest.progress.loss_scale.scale > 0) json.member("loss_scale", manifest.progress.loss_scale.scale);
  json.member("files", manifest.files.size()).member("bytes", bytes_of(manifest));
}

std::string describe_plugins(const Manifest& manifest) {
  std::string text;
  const JsonValue plugins = parse_json(manifest.plugins, "plugins");
  for (const JsonValue& plugin : plugins.as_array())
    text += visible(detail::concat("plugin      ", plugin.at("kind").as_string(), " ",
                                   plugin.at("name").as_string(), " ", plugin.at("version").as_string(),
                                   ", sha256 ", plugin.at("sha256").as_string())) +
            "\n";
  return text;
}

std::string describe_tensors(const CheckpointFiles& files) {
  std::string text;
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : files.tensors()) {
    bytes += all_of(name, tensor).bytes();
    text += detail::concat("  ", visible(name), " ", type_text(tensor));
    if (tensor.pieces.size() > 1) text += detail::concat(" in ", tensor.pieces.size(), " parts");
    text += "\n";
  }
  return detail::concat("tensors     ", files.tensors().size(), ", ", size_text(bytes), "\n", text);
}

// Cuts a tensor into pieces small enough for every core to have one in memory.
void add_pieces(const TensorSlice& slice, std::vector<TensorSlice>& pieces) {
  const std::int64_t most = (std::int64_t{64} << 20) / size_of(slice.type);
  for (std::int64_t first = 0; first < slice.slice.count; first += most) {
    pieces.push_back(slice);
    pieces.back().slice.first = slice.slice.first + first;
    pieces.back().slice.count = std::min(most, slice.slice.count - first);
  }
}

// Returns what is wrong with each tensor, or nothing, in their order; all cores work on it.
std::vector<std::string> troubles_of(const CheckpointFiles& files, std::span<const TensorSlice> slices) {
  std::vector<std::string> troubles(slices.size());
  share_out(std::thread::hardware_concurrency(), slices.size(), [&](std::size_t, std::size_t i) {
    try {
      bytes_of(files, slices[i]);
    } catch (const Error& error) {
      troubles[i] = error.what();
    }
  });
  std::erase(troubles, "");
  return troubles;
}

CheckpointVerdict verify_checkpoint(const fs::path& folder) {
  CheckpointVerdict verdict{folder, 0, 0, {}};
  try {
    const CheckpointFiles files(folder);
    std::vector<TensorSlice> slices;
    for (const auto& [name, tensor] : files.tensors()) {
      const TensorSlice slice = all_of(name, tensor);
      ++verdict.tensors;
      verdict.bytes += slice.bytes();
      add_pieces(slice, slices);
    }
    verdict.troubles = troubles_of(files, slices);
  } catch (const Error& error) {
    verdict.troubles.emplace_back(error.what());
  }
  return verdict;
}

// ------------------------------------------------------------------- differences

// Counts numbers that differ, and says by how much at most; NaN differs from all but itself.
struct Distance {
  std::int64_t elements = 0;
  double largest = 0;
};

template <class T>
Distance distance(std::span<const std::byte> a, std::span<const std::byte> b) {
  Distance all;
  for (std::size_t at = 0; at < a.size(); at += sizeof(T)) {
    if (std::memcmp(a.data() + at, b.data() + at, sizeof(T)) == 0) continue;
    T x, y;
    std::memcpy(&x, a.data() + at, sizeof(T));
    std::memcpy(&y, b.data() + at, sizeof(T));
    ++all.elements;
    all.largest = std::max(all.largest, std::abs(static_cast<double>(x) - static_cast<double>(y)));
  }
  return all;
}

Distance distance(DType type, std::span<const std::byte> a, std::span<const std::byte> b) {
  switch (type) {
    case DType::f64: return distance<double>(a, b);
    case DType::f32: return distance<float>(a, b);
    case DType::bf16: return distance<bf16>(a, b);
    case DType::f16: return distance<f16>(a, b);
    case DType::i32: return distance<std::int32_t>(a, b);
    case DType::u16: return distance<std::uint16_t>(a, b);
    default: return distance<std::int64_t>(a, b);
  }
}

std::string tensor_difference(const CheckpointFiles& before, const CheckpointFiles& after,
                              const std::string& name) {
  const auto a = before.tensors().find(name), b = after.tensors().find(name);
  if (a == before.tensors().end()) return visible(name) + ": only in the second\n";
  if (b == after.tensors().end()) return visible(name) + ": only in the first\n";
  if (type_text(a->second) != type_text(b->second))
    return visible(name) + ": " + type_text(a->second) + " and " + type_text(b->second) + "\n";
  const TensorSlice slice = all_of(name, a->second);
  const Distance apart = distance(slice.type, bytes_of(before, slice), bytes_of(after, slice));
  if (apart.elements == 0) return {};
  return detail::concat(visible(name), ": ", apart.elements, " of ", slice.slice.count,
                        " elements differ, by at most ", apart.largest, "\n");
}

std::string manifest_difference(const Manifest& a, const Manifest& b) {
  std::string text;
  const auto compare = [&](const char* name, const auto& before, const auto& after) {
    if (before != after) text += visible(detail::concat(name, ": ", before, " and ", after)) + "\n";
  };
  compare("run", a.run.id, b.run.id);
  compare("step", a.progress.step, b.progress.step);
  compare("updates", a.progress.updates, b.progress.updates);
  compare("samples", a.progress.samples, b.progress.samples);
  compare("loss scale", a.progress.loss_scale.scale, b.progress.loss_scale.scale);
  compare("finite steps at it", a.progress.loss_scale.clean, b.progress.loss_scale.clean);
  compare("mesh", a.mesh, b.mesh);
  compare("arithmetic", join(a.arithmetic, ", "), join(b.arithmetic, ", "));
  if (a.choices.texts != b.choices.texts) text += "choices: other kernels were chosen by trying\n";
  if (a.plugins != b.plugins) text += "plugins: other ones, or other builds of them; see prun ckpt show\n";
  for (const Change& change : changes(a.recipe, b.recipe))
    text += visible(change.key + ": " + change.before + " and " + change.now) + "\n";
  return text;
}

std::string list_checkpoints(const fs::path& run_folder) {
  const std::optional<fs::path> latest = read_latest(run_folder);
  std::string text;
  for (const fs::path& folder : checkpoints_in(run_folder)) text += line_of(folder, latest);
  return text;
}

std::string checkpoints_json(const fs::path& run_folder) {
  const std::optional<fs::path> latest = read_latest(run_folder);
  JsonWriter json;
  json.begin_array();
  for (const fs::path& folder : checkpoints_in(run_folder)) {
    json.begin_object();
    try {
      const Manifest manifest = read_manifest(folder);
      write_facts(json, folder, manifest);
      json.member("latest", folder == latest);
    } catch (const Error& error) {
      json.member("checkpoint", folder.string()).member("trouble", std::string_view(error.what()));
    }
    json.end_object();
  }
  return json.end_array().take();
}

std::string checkpoint_json(const fs::path& checkpoint) {
  const fs::path folder = find_checkpoint(checkpoint);
  const CheckpointFiles files(folder);
  JsonWriter json;
  json.begin_object();
  write_facts(json, folder, files.manifest());
  json.name("plugins").value(parse_json(files.manifest().plugins, "plugins"));
  json.name("recipe").begin_object();
  for (const auto& [key, value] : files.manifest().recipe) json.member(key, value);
  json.end_object().name("tensors").begin_array();
  for (const auto& [name, tensor] : files.tensors()) {
    json.begin_object().member("name", name).member("type", name_of(to_safetensors_type(tensor.type)));
    json.name("shape").begin_array();
    for (const std::int64_t extent : tensor.shape) json.value(extent);
    json.end_array().end_object();
  }
  return json.end_array().end_object().take();
}

std::string describe_checkpoint(const fs::path& checkpoint, bool recipe) {
  const fs::path folder = find_checkpoint(checkpoint);
  if (recipe) {
    std::string text;
    for (const auto& [key, value] : read_manifest(folder).recipe)
      text.append(visible(detail::concat(key, " = ", value))).append("\n");
    return text;
  }
  const CheckpointFiles files(folder);
  const Manifest& manifest = files.manifest();
  std::string text =
      detail::concat("checkpoint  ", folder.string(), "\nrun         ", manifest.run.id,
                     manifest.run.parent.empty() ? "" : ", from " + manifest.run.parent, "\nsave        ",
                     manifest.save, "\nprogress    step ", manifest.progress.step, ", ",
                     manifest.progress.updates, " updates, ", manifest.progress.samples,
                     " samples\nranks       ", manifest.mesh.empty() ? "one" : visible(manifest.mesh), "\n");
  if (const LossScale& scale = manifest.progress.loss_scale; scale.scale > 0)
    text +=
        detail::concat("loss scale  2^", std::ilogb(scale.scale), ", ", scale.clean, " finite steps since\n");
  for (const std::string& arithmetic : manifest.arithmetic)
    if (!arithmetic.empty()) text += "arithmetic  " + visible(arithmetic) + "\n";
  text += detail::concat("files       ", manifest.files.size(), ", ", size_text(bytes_of(manifest)), "\n");
  return text + describe_plugins(manifest) + describe_tensors(files);
}

std::vector<CheckpointVerdict> verify_checkpoints(const fs::path& where) {
  std::vector<CheckpointVerdict> verdicts;
  try {
    read_latest(where);
  } catch (const Error& error) {  // a checkpoint that it names and that is missing is in no list
    verdicts.push_back({where / "latest", 0, 0, {error.what()}});
  }
  for (const fs::path& folder : checkpoints_in(where)) verdicts.push_back(verify_checkpoint(folder));
  return verdicts;
}

std::string to_json(const std::vector<CheckpointVerdict>& verdicts) {
  JsonWriter json;
  json.begin_array();
  for (const CheckpointVerdict& verdict : verdicts) {
    json.begin_object().member("checkpoint", verdict.checkpoint.string()).member("tensors", verdict.tensors);
    json.member("bytes", verdict.bytes).name("troubles").begin_array();
    for (const std::string& trouble : verdict.troubles) json.value(trouble);
    json.end_array().end_object();
  }
  return json.end_array().take();
}

CheckpointDifference compare_checkpoints(const fs::path& before, const fs::path& after) {
  const CheckpointFiles a(find_checkpoint(before)), b(find_checkpoint(after));
  std::vector<std::string> names;
  for (const auto* files : {&a, &b})
    for (const auto& [name, tensor] : files->tensors()) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string tensors;
  for (const std::string& name : names) tensors += tensor_difference(a, b, name);
  return {manifest_difference(a.manifest(), b.manifest()) + tensors, !tensors.empty()};
}

void reshard_checkpoint(const fs::path& from, const fs::path& to, std::int64_t files) {
  const CheckpointFiles source(find_checkpoint(from));
  if (const auto most = static_cast<std::int64_t>(source.tensors().size()); files > most)
    throw_error(ErrorCode::bad_input, "--files ", files, ": ", from.string(), " has ", most,
                " tensors, and each lies in one file; give at most ", most);
  std::vector<std::vector<TensorSlice>> parts(static_cast<std::size_t>(files));
  std::vector<std::int64_t> loads(parts.size(), 0);
  for (const auto& [name, tensor] : source.tensors()) {
    const auto least = std::min_element(loads.begin(), loads.end());
    const TensorSlice slice = all_of(name, tensor);
    parts[static_cast<std::size_t>(least - loads.begin())].push_back(slice);
    *least += slice.bytes();
  }
  DurableFolder folder(to);
  Manifest manifest = source.manifest();
  manifest.files.clear();
  for (const std::vector<TensorSlice>& slices : parts) {
    const fs::path file = folder.staging() / rank_file_name(manifest.files.size());
    write_slices(file, slices, [&](std::size_t number, const WriteBytes& write) {
      write(bytes_of(source, slices[number]));
    });
    manifest.files.push_back(file_record(file));
  }
  replace_text_file(folder.staging() / manifest_name, to_text(manifest));
  folder.commit();
}

std::vector<fs::path> prune_checkpoints(const fs::path& run_folder, Keep keep) {
  const std::optional<RunIdentity> owner = owner_of(run_folder);
  if (!owner)
    throw_error(ErrorCode::bad_input, run_folder.string(), " is not the folder of a run: it has no run.id");
  const RunClaim claim(run_folder, "prun ckpt prune");
  clear_dead_saves(run_folder);
  return remove_old_checkpoints(run_folder, *owner, keep);
}

// ------------------------------------------------------------------- ckpt verb

bool is_good(const CheckpointVerdict& verdict) { return verdict.troubles.empty(); }

void print(const std::vector<CheckpointVerdict>& verdicts, bool quiet) {
  for (const CheckpointVerdict& verdict : verdicts) {
    if (is_good(verdict) && !quiet)
      std::printf("%s: good, %lld tensors, %s\n", verdict.checkpoint.c_str(),
                  static_cast<long long>(verdict.tensors), size_text(verdict.bytes).c_str());
    for (const std::string& trouble : verdict.troubles)
      std::printf("%s: damaged: %s\n", verdict.checkpoint.c_str(), trouble.c_str());
  }
}

int verify(const Arguments& arguments, const std::string& where) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const std::vector<CheckpointVerdict> verdicts = verify_checkpoints(where);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  double bytes = 0;
  for (const CheckpointVerdict& verdict : verdicts) bytes += static_cast<double>(verdict.bytes);
  if (arguments.has("--json"))
    std::printf("%s\n", to_json(verdicts).c_str());
  else
    print(verdicts, arguments.has("--quiet"));
  if (!arguments.has("--json") && !arguments.has("--quiet"))
    std::printf("%zu checkpoints read in %.1f s, %s/s\n", verdicts.size(), seconds,
                size_text(bytes / std::max(seconds, 1e-9)).c_str());
  const bool good = std::all_of(verdicts.begin(), verdicts.end(), is_good);
  return good ? 0 : exit_code(ErrorCode::bad_input);
}

int diff(const std::string& before, const std::string& after) {
  const CheckpointDifference difference = compare_checkpoints(before, after);
  std::fputs(difference.text.c_str(), stdout);
  if (!difference.tensors_differ) std::printf("all tensors are the same\n");
  return difference.tensors_differ ? 1 : 0;
}

int prune(const Arguments& arguments, const std::string& folder) {
  const CleanEnd clean;
  const Keep keep{arguments.number("--keep", 0), arguments.number("--keep-every", 0)};
  for (const std::filesystem::path& removed : prune_checkpoints(folder, keep))
    std::printf("removed %s\n", removed.c_str());
  return 0;
}

int reshard(const Arguments& arguments, const std::string& from, const std::string& to) {
  const CleanEnd clean;
  reshard_checkpoint(from, to, arguments.number("--files", 1));
  std::printf("wrote %s\n", to.c_str());
  return 0;
}

int ckpt_command(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words;
  const std::string &verb = words[0], &where = words[1];
  if (verb == "verify") return verify(arguments, where);
  if (verb == "prune") return prune(arguments, where);
  for (const std::string& checkpoint : std::span(words).subspan(1, verb == "diff" ? 2 : 1))
    say_without_latest(checkpoint);
  if (verb == "diff") return diff(where, words[2]);
  const bool json = arguments.has("--json");
  if (verb == "ls")
    std::fputs((json ? checkpoints_json(where) + "\n" : list_checkpoints(where)).c_str(), stdout);
  else if (verb == "show")
    std::fputs((json ? checkpoint_json(where) + "\n" : describe_checkpoint(where, arguments.has("--recipe")))
                   .c_str(),
               stdout);
  else
    return reshard(arguments, where, words[2]);
  return 0;
}

}  // namespace

std::vector<Command> ckpt_verb() {
  return {{"ckpt ls", "RUN", "the checkpoints in the folder of a run", {json_option}, ckpt_command},
          {"ckpt show",
           "CKPT",
           "what one is of: run, progress, plugins, tensors",
           {{"--recipe", "", "the recipe that it was saved with"}, json_option},
           ckpt_command},
          {"ckpt verify",
           "CKPT",
           "compare every byte of one, or of all in a run's folder, with its checksums",
           {json_option, quiet_option},
           ckpt_command},
          {"ckpt diff", "CKPT CKPT", "what differs: progress, recipe, tensors", {}, ckpt_command},
          {"ckpt reshard",
           "CKPT DIR",
           "the same as so many files of whole tensors; none is needed to go on in another layout",
           {{"--files", "N", "files, 1"}},
           ckpt_command},
          {"ckpt prune",
           "RUN",
           "remove the oldest, while no run works in its folder",
           {{"--keep", "N", "newest that stay", true},
            {"--keep-every", "N", "those stay too whose step is a multiple"}},
           ckpt_command}};
}

}  // namespace prun
