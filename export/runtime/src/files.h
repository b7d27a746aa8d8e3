// Files of a bundle: they are read only inside its folder, and only if their hashes are right.
#ifndef SEQLAB_FILES_H_
#define SEQLAB_FILES_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace seqlab {

// Reads a file, or its first `most` bytes if it has more. Throws Refusal if it cannot be read.
std::string ReadFile(const std::filesystem::path& path, size_t most = SIZE_MAX);

// Formats bytes as lower-case hexadecimal digits, the form of every sha256.
std::string Hex(std::string_view bytes);
// Returns the sha256 of a text.
std::string Sha256OfText(std::string_view text);
// Returns the sha256 of `length` bytes of a file from an offset on, or of fewer if the file ends before.
std::string Sha256OfFile(const std::filesystem::path& path, int64_t offset = 0, int64_t length = INT64_MAX);

// Returns true if a name is a relative path that never leads up.
bool IsInside(const std::string& name);

// Returns the paths of all files and links in a folder and its subfolders.
std::vector<std::string> FilesIn(const std::filesystem::path& folder);

// Returns why a file, links resolved, is not in the bundle's folder; empty = it is.
std::string Elsewhere(const std::filesystem::path& folder, const std::string& name);

// Returns what is wrong with a file of a bundle that should have this sha256; empty = nothing.
std::string Damage(const std::filesystem::path& folder, const std::string& name, const std::string& sha256);

}  // namespace seqlab

#endif  // SEQLAB_FILES_H_
