#include "ckpt/checkpoints.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <thread>

#include "base/durable_file.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "prun/visible.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/run_folder.hpp"

namespace prun {
namespace {

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

}  // namespace

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

}  // namespace prun
