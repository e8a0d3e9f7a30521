#include "train/checkpoint/run_identity.hpp"

#include <sys/random.h>

#include <array>
#include <cerrno>

#include "base/crc32c.hpp"
#include "base/durable_file.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;
constexpr const char* file_name = "run.id";
constexpr std::string_view parent_mark = " from ";
constexpr std::size_t id_digits = 32;

std::string new_id() {
  std::array<unsigned char, id_digits / 2> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw_storage_error("read", "/dev/urandom", errno);
  constexpr std::string_view digits = "0123456789abcdef";
  std::string id;
  for (const unsigned char byte : bytes) {
    id += digits[byte >> 4];
    id += digits[byte & 15];
  }
  return id;
}

void write_owner(const fs::path& run_folder, const RunIdentity& run) {
  const std::string parent = run.parent.empty() ? "" : std::string(parent_mark) + run.parent;
  put_text_file(run_folder / file_name, sealed_line(run.id + parent));
}

bool holds_checkpoints(const fs::path& run_folder) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(run_folder / "latest", ignored));
}

bool lies_in(const fs::path& run_folder, const Origin& origin) {
  std::error_code ignored;
  return fs::equivalent(origin.run_folder, run_folder, ignored);
}

RunIdentity successor(const std::optional<Origin>& origin) {
  RunIdentity run = fresh_run();
  if (origin) run.parent = detail::concat(origin->run.id, " at step ", origin->step);
  return run;
}

}  // namespace

RunIdentity fresh_run() { return {new_id(), {}}; }

bool is_run_id(const std::string& text) {
  return text.size() == id_digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::optional<RunIdentity> owner_of(const fs::path& run_folder) {
  const fs::path path = run_folder / file_name;
  const std::optional<std::string> line = read_short_file(path);
  if (!line) return std::nullopt;
  const std::string text = unsealed(*line).value_or("");
  RunIdentity run{text.substr(0, id_digits), {}};
  if (text.size() > id_digits + parent_mark.size()) run.parent = text.substr(id_digits + parent_mark.size());
  if (!is_run_id(run.id))
    throw_error(ErrorCode::bad_input, "'", path.string(),
                "', which says whose folder it is, is damaged; remove it, and a run that goes on from here "
                "writes it anew");
  return run;
}

RunIdentity claim_folder(const fs::path& run_folder, const std::optional<Origin>& origin) {
  const std::optional<RunIdentity> owner = owner_of(run_folder);
  if (owner && origin && owner->id == origin->run.id) return *owner;
  const bool lost = !owner && origin && lies_in(run_folder, *origin);
  if (!lost && holds_checkpoints(run_folder))
    throw_error(ErrorCode::bad_input, run_folder.string(), " holds the checkpoints of another run",
                owner ? " (" + owner->id + ")" : "", "; go on with it by run.resume = \"",
                run_folder.string(), "\", or give run.out another folder");
  const RunIdentity run = lost ? origin->run : successor(origin);
  write_owner(run_folder, run);
  return run;
}

void keep_claim(const fs::path& run_folder, const RunIdentity& run) {
  const std::optional<RunIdentity> owner = owner_of(run_folder);
  if (!owner) return write_owner(run_folder, run);
  if (owner->id != run.id)
    throw_error(ErrorCode::bad_input, run_folder.string(), " belongs to another run by now (", owner->id,
                "); nothing was saved there");
}

}  // namespace prun
