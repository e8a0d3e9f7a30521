#include "train/checkpoint.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/safetensors.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;
constexpr const char* format_version = "1";

std::string file_name(std::int64_t rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%05lld.safetensors", static_cast<long long>(rank));
  return name;
}

struct Item {
  SafetensorsSpec spec;
  std::byte* data;
  std::int64_t bytes;
};

// What outlives a step on this rank: parameters, or its parts of them, and optimizer state.
bool lasts(const Program& program, Id id) {
  const Value& value = program.value(id);
  const Bucket* bucket =
      value.bucket < 0 ? nullptr : &program.buckets()[static_cast<std::size_t>(value.bucket)];
  if (value.role == Role::state) return !bucket || id != bucket->own_gradients;
  return value.role == Role::parameter && (!bucket || !bucket->kept.parameters);
}

// Without an executor they have no data yet.
std::vector<Item> items(const Assembly& assembly, Executor* executor) {
  const Program& program = assembly.program();
  std::vector<Item> list;
  for (std::size_t i = 0; i < assembly.plan().instances.size(); ++i) {
    if (assembly.plan().instances[i].receive_stub) continue;
    for (Id id : program.segment(assembly.plan().instances[i].segment).values) {
      const auto instance = static_cast<std::int32_t>(i);
      if (!lasts(program, id)) continue;
      SafetensorsSpec spec{assembly.full_name(id, instance), program.value(id).dtype, {}};
      for (const Dim& dim : program.local_dims(id)) spec.shape.push_back(dim.extent);
      std::byte* const data = executor ? executor->address(id, instance) : nullptr;
      list.push_back({std::move(spec), data, program.local_bytes(id)});
    }
  }
  return list;
}

// Whether every rank holds the same.
bool all_alike(const Program& program) {
  if (program.pipeline()) return false;
  for (Id id = 0; id < program.value_count(); ++id)
    for (std::size_t axis = 0; axis < program.mesh().size(); ++axis)
      if (lasts(program, id) && program.value(id).on(axis).is_sharded()) return false;
  return true;
}

// "dp=2 tp=2 state in parts over dp": what must be the same for ranks to go on from their own files.
std::string layout_text(const Program& program) {
  if (all_alike(program)) return "alike";
  std::string text;
  for (const Axis& axis : program.mesh().axes()) text += axis.name + "=" + std::to_string(axis.extent) + " ";
  if (const auto& pipeline = program.pipeline())
    text += pipeline->schedule + " in " + std::to_string(pipeline->chunks) + " chunks over " +
            program.mesh().axes()[pipeline->axis].name + " ";
  for (const Program::Parts& parts : program.parts())
    text += (parts.kept.parameters ? "state and parameters in parts over " : "state in parts over ") +
            program.mesh().axes()[parts.axis].name;
  return text;
}

std::string folder_name(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

void remove_old(const fs::path& run_folder, std::int64_t keep) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_folder))
    if (entry.is_directory() && entry.path().filename().string().rfind("step-", 0) == 0)
      folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < folders.size(); ++i)
    fs::remove_all(folders[i]);
}

std::int64_t number(const SafetensorsFile& file, const std::string& key) {
  const auto& metadata = file.index().metadata();
  const auto found = metadata.find(key);
  std::int64_t value = -1;
  if (found != metadata.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) value = -1;
  }
  if (value < 0)
    throw_error(ErrorCode::bad_input, file.path().string(), ": metadata '", key,
                "' is missing or no count; this is no checkpoint of prun");
  return value;
}

fs::path checkpoint_folder(const fs::path& where) {
  if (fs::exists(where / file_name(0))) return where;
  if (const auto latest = read_latest(where)) return *latest;
  throw_error(ErrorCode::not_found, where.string(), " holds no checkpoint: there is neither ", file_name(0),
              " nor `latest` in it");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::int64_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

const SafetensorsEntry& entry_of(const SafetensorsFile& file, const Item& item) {
  const SafetensorsEntry* entry = file.index().find(item.spec.name);
  if (!entry)
    throw_error(ErrorCode::bad_input, file.path().string(), " has no tensor '", item.spec.name,
                "'; the recipe's model, optimizer or precision differs from the saved run's");
  if (to_dtype(entry->type) != item.spec.type || entry->shape != item.spec.shape)
    throw_error(ErrorCode::bad_input, file.path().string(), ": tensor '", item.spec.name, "' is ",
                name_of(entry->type), shape_text(entry->shape), ", the recipe makes it ",
                name_of(to_safetensors_type(item.spec.type)), shape_text(item.spec.shape));
  return *entry;
}

// What a rank goes on from, saved by the same layout.
SafetensorsFile open_file(const Assembly& assembly, const fs::path& folder, std::int64_t rank) {
  const std::string layout = layout_text(assembly.program());
  SafetensorsFile file(folder / file_name(layout == "alike" ? 0 : rank));
  const auto saved = file.index().metadata().find("prun.layout");
  if (saved != file.index().metadata().end() && saved->second != layout)
    throw_error(ErrorCode::bad_input, file.path().string(), " was saved by the layout '", saved->second,
                "', the recipe makes it '", layout,
                "'; go on with the mesh and strategies it was saved with");
  return file;
}

Progress progress_of(const SafetensorsFile& file) {
  return {number(file, "prun.step"), number(file, "prun.updates"), number(file, "prun.samples")};
}

void check_count(const SafetensorsFile& file, const std::vector<Item>& list) {
  if (list.size() != file.entries().size())
    throw_error(ErrorCode::bad_input, file.path().string(), " holds ", file.entries().size(),
                " tensors, the recipe needs ", list.size(),
                "; the recipe's model, optimizer or precision differs from the saved run's");
}

void write_file(const Assembly& assembly, Executor& executor, const Progress& progress,
                const fs::path& folder) {
  const std::vector<Item> list = items(assembly, &executor);
  std::vector<SafetensorsSpec> specs;
  for (const Item& item : list) specs.push_back(item.spec);
  const SafetensorsMetadata metadata{{"prun.format", format_version},
                                     {"prun.step", std::to_string(progress.step)},
                                     {"prun.updates", std::to_string(progress.updates)},
                                     {"prun.samples", std::to_string(progress.samples)},
                                     {"prun.layout", layout_text(assembly.program())},
                                     {"prun.recipe", assembly.recipe().resolved_toml()}};
  SafetensorsWriter writer(folder / file_name(assembly.rank()), specs, metadata);
  for (const SafetensorsSpec& spec : writer.order()) {
    const auto item =
        std::find_if(list.begin(), list.end(), [&](const Item& i) { return i.spec.name == spec.name; });
    writer.write(spec.name, {item->data, static_cast<std::size_t>(item->bytes)});
  }
  writer.finish();
}

// The first rank's part: the folder, whose place the others are told, and its end.
fs::path save_first(const Assembly& assembly, Executor& executor, const Progress& progress,
                    const fs::path& target, const Announce& others) {
  if (fs::exists(target)) {  // saved at this very step already
    if (others) others("save", "");
    return target;
  }
  DurableFolder folder(target);
  if (others) others("save", folder.staging().string());
  write_file(assembly, executor, progress, folder.staging());
  if (others) others("saved", "");
  folder.commit_as_latest();
  return target;
}

void save_part(const Assembly& assembly, Executor& executor, const Progress& progress,
               const Announce& others) {
  const std::string staging = others("save", "").front();
  if (staging.empty()) return;
  write_file(assembly, executor, progress, staging);
  others("saved", "");
}

}  // namespace

fs::path checkpoint_path(const fs::path& run_folder, std::int64_t step) {
  return run_folder / folder_name(step);
}

fs::path save_checkpoint(const Assembly& assembly, Executor& executor, const Progress& progress,
                         const fs::path& run_folder, std::int64_t keep, const Announce& announce) {
  const fs::path target = checkpoint_path(run_folder, progress.step);
  const Announce others = all_alike(assembly.program()) ? Announce{} : announce;
  if (assembly.rank() == 0) {
    save_first(assembly, executor, progress, target, others);
    if (keep > 0) remove_old(run_folder, keep);
  } else if (others) {
    save_part(assembly, executor, progress, others);
  }
  return target;
}

Progress load_checkpoint(const Assembly& assembly, Executor& executor, const fs::path& where) {
  const SafetensorsFile file = open_file(assembly, checkpoint_folder(where), assembly.rank());
  const Progress progress = progress_of(file);
  const std::vector<Item> list = items(assembly, &executor);
  check_count(file, list);
  for (const Item& item : list) {
    const std::span<const std::byte> bytes = file.bytes(entry_of(file, item));
    std::memcpy(item.data, bytes.data(), bytes.size());
  }
  return progress;
}

void check_checkpoint(const Assembly& assembly, const fs::path& where) {
  const fs::path folder = checkpoint_folder(where);
  const std::int64_t files = all_alike(assembly.program()) ? 1 : assembly.mesh().world();
  for (std::int64_t rank = 0; rank < files; ++rank) {
    const SafetensorsFile file = open_file(assembly, folder, rank);
    progress_of(file);
    if (rank != assembly.rank()) continue;  // what others need of theirs, their own plans tell
    const std::vector<Item> list = items(assembly, nullptr);
    check_count(file, list);
    for (const Item& item : list) entry_of(file, item);
  }
}

}  // namespace prun
