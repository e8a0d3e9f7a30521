#include "run/checkpoint.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "run/safetensors.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;
constexpr const char* file_name = "rank-00000.safetensors";
constexpr const char* format_version = "1";

struct Item {
  SafetensorsSpec spec;
  std::byte* data;
  std::int64_t bytes;
};

std::vector<Item> items(const Assembly& assembly, Executor& executor) {
  std::vector<Item> list;
  const auto add = [&](Id id, std::int32_t instance) {
    const Value& value = assembly.program().value(id);
    SafetensorsSpec spec{assembly.full_name(id, instance), value.dtype, {}};
    for (const Dim& dim : value.dims) spec.shape.push_back(dim.extent);
    list.push_back({std::move(spec), executor.address(id, instance), value.bytes()});
  };
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    const Value& value = assembly.program().value(id);
    add(id, instance);
    if (value.master != none) add(value.master, instance);
    for (Id state : value.states) add(state, instance);
  });
  return list;
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
  if (fs::exists(where / file_name)) return where;
  if (const auto latest = read_latest(where)) return *latest;
  throw_error(ErrorCode::not_found, where.string(), " holds no checkpoint: there is neither ", file_name,
              " nor `latest` in it");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::int64_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

void read_item(const SafetensorsFile& file, const Item& item) {
  const SafetensorsEntry* entry = file.index().find(item.spec.name);
  if (!entry)
    throw_error(ErrorCode::bad_input, file.path().string(), " has no tensor '", item.spec.name,
                "'; the recipe's model, optimizer or precision differs from the saved run's");
  if (to_dtype(entry->type) != item.spec.type || entry->shape != item.spec.shape)
    throw_error(ErrorCode::bad_input, file.path().string(), ": tensor '", item.spec.name, "' is ",
                name_of(entry->type), shape_text(entry->shape), ", the recipe makes it ",
                name_of(to_safetensors_type(item.spec.type)), shape_text(item.spec.shape));
  const std::span<const std::byte> bytes = file.bytes(*entry);
  std::memcpy(item.data, bytes.data(), bytes.size());
}

}  // namespace

fs::path checkpoint_path(const fs::path& run_folder, std::int64_t step) {
  return run_folder / folder_name(step);
}

fs::path save_checkpoint(const Assembly& assembly, Executor& executor, const Progress& progress,
                         const fs::path& run_folder, std::int64_t keep) {
  const fs::path target = checkpoint_path(run_folder, progress.step);
  if (fs::exists(target)) return target;  // saved at this very step already
  const std::vector<Item> list = items(assembly, executor);
  std::vector<SafetensorsSpec> specs;
  for (const Item& item : list) specs.push_back(item.spec);
  const SafetensorsMetadata metadata{{"prun.format", format_version},
                                     {"prun.step", std::to_string(progress.step)},
                                     {"prun.updates", std::to_string(progress.updates)},
                                     {"prun.samples", std::to_string(progress.samples)},
                                     {"prun.recipe", assembly.recipe().resolved_toml()}};
  DurableFolder folder(target);
  SafetensorsWriter writer(folder.staging() / file_name, specs, metadata);
  for (const SafetensorsSpec& spec : writer.order()) {
    const auto item =
        std::find_if(list.begin(), list.end(), [&](const Item& i) { return i.spec.name == spec.name; });
    writer.write(spec.name, {item->data, static_cast<std::size_t>(item->bytes)});
  }
  writer.finish();
  folder.commit_as_latest();
  if (keep > 0) remove_old(run_folder, keep);
  return target;
}

Progress load_checkpoint(const Assembly& assembly, Executor& executor, const fs::path& where) {
  const SafetensorsFile file(checkpoint_folder(where) / file_name);
  const Progress progress{number(file, "prun.step"), number(file, "prun.updates"),
                          number(file, "prun.samples")};
  const std::vector<Item> list = items(assembly, executor);
  if (list.size() != file.entries().size())
    throw_error(ErrorCode::bad_input, file.path().string(), " holds ", file.entries().size(),
                " tensors, the recipe needs ", list.size(),
                "; the recipe's model, optimizer or precision differs from the saved run's");
  for (const Item& item : list) read_item(file, item);
  return progress;
}

}  // namespace prun
