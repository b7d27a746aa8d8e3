// Files of a bundle: read only inside its folder, and only if they are as they were hashed.
#ifndef SEQLAB_FILES_H_
#define SEQLAB_FILES_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace seqlab {

// The first bytes of a file, all where there are no more than `most`. Throws Refusal where it cannot be read.
std::string ReadFile(const std::filesystem::path& path, size_t most = SIZE_MAX);

// In lower-case hexadecimal digits; a sha256 likewise.
std::string Hex(std::string_view bytes);
std::string Sha256OfText(std::string_view text);
// Of so many bytes from an offset on, or of fewer where the file ends.
std::string Sha256OfFile(const std::filesystem::path& path, int64_t offset = 0, int64_t length = INT64_MAX);

// Whether a name is a relative path that leads no higher.
bool IsInside(const std::string& name);

// The paths of all files and links in a folder and the folders in it.
std::vector<std::string> FilesIn(const std::filesystem::path& folder);

// Why a file is not one of a bundle's folder, where all links lead; empty = it is.
std::string Elsewhere(const std::filesystem::path& folder, const std::string& name);

// What is wrong with a file of a bundle that should have this sha256; empty = nothing is.
std::string Damage(const std::filesystem::path& folder, const std::string& name, const std::string& sha256);

}  // namespace seqlab

#endif  // SEQLAB_FILES_H_
