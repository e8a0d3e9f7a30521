// Loads a plugin: trust, note, library, entry, descriptor, each checked before the next; then makes objects.
//
// A library that was loaded stays for the life of the process (any code may refer to its code), so a
// PluginLibrary is a record that may come and go. Objects must be gone before main() returns.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/durable_file.hpp"
#include "plugin/guarded_plugin.hpp"
#include "plugin/note.hpp"
#include "prun/plugin.hpp"

namespace prun {

// ------------------------------------------------------------------- trust
// Checks whether a plugin file may be run: only root and the user may be able to change it or put another in
// its place.

// Holds open a file that passed. Read its note and its digest through `descriptor`, load it by `path`, and
// call check_same_file() afterwards.
struct TrustedFile {
  FileDescriptor descriptor;
  std::filesystem::path path;  // canonical path
  dev_t device = 0;
  ino_t inode = 0;
  std::vector<std::string> warnings;  // sentences on what the group may write to
};

// Throws bad_input if the file or any folder above it can be written by all or by a foreign group, sticky
// folders excepted, or belongs to a user who is neither root nor the effective user. Symbolic links are
// followed; the folders that hold them are judged too. Throws not_found if there is no such file.
TrustedFile open_trusted(const std::filesystem::path& path);

// Throws bad_input unless `path` still is the file that was checked.
void check_same_file(const TrustedFile& file, const std::filesystem::path& path);

// Says why a file or folder with these attributes must not be trusted by `user`, whose own group is `group`;
// the text is empty if it may.
std::string distrust(const struct stat& info, uid_t user, gid_t group);

// ------------------------------------------------------------------- loader

// Holds a library in memory whose entry has not been called yet.
struct MappedPlugin {
  TrustedFile file;
  PluginNote note;
  PluginEntry entry = nullptr;
};

// Throws bad_input unless the file is trusted, fits this prun by its note, has every symbol it needs, and
// holds the entry itself rather than in a library it depends on.
MappedPlugin map_plugin(const std::filesystem::path& path);

// Says how a plugin disagrees with its own note or with this prun; the text is empty if it does not.
std::string descriptor_problem(const PluginDescriptor* descriptor, const PluginNote& note);

namespace detail {
template <class Interface>
inline constexpr std::string_view kind_of = "";
template <>
inline constexpr std::string_view kind_of<ModelInterface> = "model";
template <>
inline constexpr std::string_view kind_of<StrategyInterface> = "strategy";
template <>
inline constexpr std::string_view kind_of<OptimizerInterface> = "optimizer";
template <>
inline constexpr std::string_view kind_of<DataInterface> = "data";
template <>
inline constexpr std::string_view kind_of<ObserverInterface> = "observer";
template <>
inline constexpr std::string_view kind_of<DeviceInterface> = "device";
template <>
inline constexpr std::string_view kind_of<OpPluginInterface> = "op";
template <>
inline constexpr std::string_view kind_of<ScheduleInterface> = "schedule";
template <>
inline constexpr std::string_view kind_of<CommInterface> = "comm";
}  // namespace detail

class PluginLibrary : public std::enable_shared_from_this<PluginLibrary> {
 public:
  // Maps the file, calls its entry and checks the descriptor. Throws Error.
  static std::shared_ptr<const PluginLibrary> load(const std::filesystem::path& path);
  static std::shared_ptr<const PluginLibrary> load(MappedPlugin mapped);

  // The run record uses these: note().version, note().build_id, sha256(), path().
  const PluginNote& note() const { return note_; }
  const std::filesystem::path& path() const { return path_; }
  // The file's digest is made when it is asked for, once: reading a large one takes longer than loading it.
  const std::string& sha256() const;
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Makes an object of the plugin with its calls guarded; it keeps this record. The plugin reads its options
  // here and not later. Throws the plugin's own Error under its name.
  template <class Interface>
  std::shared_ptr<Interface> create(const OptionsApi& options) const {
    static_assert(!detail::kind_of<Interface>.empty(), "this is not the interface of a plugin kind");
    PRUN_CHECK(note_.kind == detail::kind_of<Interface>, describe(note_), " is not of kind ",
               detail::kind_of<Interface>);
    return std::make_shared<GuardedPlugin<Interface>>(
        describe(note_), std::shared_ptr<Interface>(
                             static_cast<Interface*>(create_raw(options)),
                             [self = shared_from_this()](Interface* made) { self->destroy_raw(made); }));
  }

  // Reads a model's options from a config.json. Throws the plugin's own Error under its name.
  void read_config(const OptionsApi& config, const ConfigWriterApi& options) const;

  // Makes an object for create(), and for callers that know no interface. Every object goes to destroy_raw()
  // once.
  void* create_raw(const OptionsApi& options) const;
  void destroy_raw(void* object) const noexcept { descriptor_->destroy(object); }

 private:
  PluginLibrary(MappedPlugin mapped, const PluginDescriptor* descriptor);

  PluginNote note_;
  std::filesystem::path path_;
  FileDescriptor file_;
  mutable std::once_flag digested_;
  mutable std::string sha256_;
  std::vector<std::string> warnings_;
  const PluginDescriptor* descriptor_;  // in static storage of a library that is never unloaded
};

}  // namespace prun
