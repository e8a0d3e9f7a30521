#include "train/checkpoint/best_checkpoint.hpp"

#include "base/crc32c.hpp"
#include "base/durable_file.hpp"
#include "base/json.hpp"
#include "base/whole_file.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;
constexpr const char* link_name = "best";
constexpr const char* record_name = "best.json";

constexpr const char* fresh_link_name = ".best.new";

// Puts a link in place of another at once.
void put_link(const fs::path& run_folder, const std::string& target) {
  const fs::path link = run_folder / link_name, fresh = run_folder / fresh_link_name;
  std::error_code error;
  fs::remove(fresh, error);
  fs::create_symlink(target, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error) throw_storage_error("write", link, error.value());
  sync_folder(run_folder);
}

}  // namespace

std::optional<BestCheckpoint> read_best(const fs::path& run_folder) {
  const fs::path record = run_folder / record_name;
  std::error_code ignored;
  if (!fs::is_regular_file(record, ignored)) return {};
  const std::optional<std::string> text = unsealed(whole_file(record, JsonLimits{}.bytes));
  if (!text) return {};
  const JsonValue json = parse_json(*text, record.string());
  return BestCheckpoint{json.at("step").as_int64(), json.at("loss").as_double()};
}

void check_best_places(const fs::path& run_folder) {
  const auto check = [&](const char* name, fs::file_type kind, const char* what) {
    std::error_code ignored;  // what cannot be inspected cannot be written either
    const fs::path path = run_folder / name;
    const fs::file_type there = fs::symlink_status(path, ignored).type();
    if (there != fs::file_type::not_found && there != kind)
      throw_error(
          ErrorCode::bad_input, path.string(), " is no ", what,
          " of prun's and stands where one is to say which checkpoint has the lowest loss; move it away");
  };
  check(link_name, fs::file_type::symlink, "link");
  check(fresh_link_name, fs::file_type::symlink, "link");
  check(record_name, fs::file_type::regular, "file");
}

void set_best(const fs::path& run_folder, const BestCheckpoint& best) {
  check_best_places(run_folder);
  JsonWriter json;
  json.begin_object().member("step", best.step).member("loss", best.loss).end_object();
  put_link(run_folder, checkpoint_path(run_folder, best.step).filename());
  put_text_file(run_folder / record_name, sealed_line(json.take()));
}

}  // namespace prun
