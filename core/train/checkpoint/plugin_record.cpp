#include "train/checkpoint/plugin_record.hpp"

#include "base/json.hpp"

namespace prun {

std::string plugin_record(const PluginHost& plugins) {
  JsonWriter json;
  json.begin_array();
  for (const auto& [key, library] : plugins.loaded()) {
    const PluginNote& note = library->note();
    json.begin_object().member("kind", note.kind).member("name", note.name).member("version", note.version);
    json.member("path", library->path().string()).member("sha256", library->sha256());
    json.member("build_id", note.build_id).end_object();
  }
  return json.end_array().take();
}

}  // namespace prun
