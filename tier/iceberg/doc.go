// Package iceberg keeps lake tables as Apache Iceberg tables of format version 2
// (https://iceberg.apache.org/spec/), with iceberg-go for metadata and manifests, and
// arrow-go for Parquet.
package iceberg
